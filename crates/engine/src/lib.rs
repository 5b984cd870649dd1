//! Executes step programs: interpreter, parameters, optimizer and training loop.
