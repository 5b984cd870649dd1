//! Streams of commands that wait to be done, and the events that order them.

use std::collections::{HashMap, VecDeque};

use super::fault;
use super::nccl::Remote;
use crate::driver::{Address, Event, Fault, Product, Stream};

/// What a stream does.
#[derive(Debug)]
pub enum Command {
    /// Runs a kernel, by its entry point.
    Kernel { kernel: String, blocks: u32, shared: u32, words: Vec<u64> },
    /// Copies bytes between addresses of the host, which all memory has.
    Copy { from: usize, to: usize, bytes: usize },
    /// Sets bytes to zero.
    Clear { at: Address, bytes: usize },
    /// Computes a product.
    Product(Product),
    /// Does something with others, when they have come to it.
    Remote(Box<dyn Remote>),
}

/// What stands in a stream.
#[derive(Debug)]
enum Entry {
    Command(Command),
    /// The event is reached in this state: how often it had been recorded.
    Record(Event, u64),
    /// What comes after is held back until then.
    Wait(Event, u64),
}

/// How often an event was recorded, and the last of these times that is reached.
#[derive(Debug, Default, Clone, Copy)]
struct Marked {
    recorded: u64,
    reached: u64,
}

/// All streams and events.
#[derive(Debug, Default)]
pub struct Streams {
    streams: Vec<VecDeque<Entry>>,
    /// Those that were closed, to be opened again.
    closed: Vec<Stream>,
    events: HashMap<Event, Marked>,
    /// Events that there were.
    made: u64,
}

impl Streams {
    pub fn open(&mut self) -> Stream {
        if let Some(stream) = self.closed.pop() {
            return stream;
        }
        self.streams.push(VecDeque::new());
        Stream(self.streams.len() as u64 - 1)
    }

    /// What it has not done it never does.
    pub fn close(&mut self, stream: Stream) {
        if let Ok(commands) = self.stream(stream) {
            commands.clear();
            self.closed.push(stream);
        }
    }

    pub fn forget(&mut self, event: Event) {
        self.events.remove(&event);
    }

    pub fn event(&mut self) -> Event {
        let event = Event(self.made);
        self.made += 1;
        self.events.insert(event, Marked::default());
        event
    }

    pub fn push(&mut self, on: Stream, command: Command) -> Result<(), Fault> {
        self.stream(on)?.push_back(Entry::Command(command));
        Ok(())
    }

    pub fn record(&mut self, event: Event, on: Stream) -> Result<(), Fault> {
        let marked = self.marked(event)?;
        marked.recorded += 1;
        let time = marked.recorded;
        self.stream(on)?.push_back(Entry::Record(event, time));
        self.pass_marks();
        Ok(())
    }

    pub fn wait(&mut self, on: Stream, event: Event) -> Result<(), Fault> {
        let time = self.marked(event)?.recorded;
        self.stream(on)?.push_back(Entry::Wait(event, time));
        self.pass_marks();
        Ok(())
    }

    pub fn is_reached(&mut self, event: Event) -> Result<bool, Fault> {
        let marked = self.marked(event)?;
        Ok(marked.reached == marked.recorded)
    }

    pub fn is_done(&mut self, stream: Stream) -> Result<bool, Fault> {
        Ok(self.stream(stream)?.is_empty())
    }

    pub fn are_done(&self) -> bool {
        self.streams.iter().all(VecDeque::is_empty)
    }

    /// Takes the command of the stream that is drawn by `below(count)` from those that have one; none if it is to wait for
    /// others.
    pub fn next(&mut self, below: impl FnOnce(usize) -> usize) -> Result<Option<Command>, Fault> {
        let mut able: Vec<&mut VecDeque<Entry>> =
            self.streams.iter_mut().filter(|stream| matches!(stream.front(), Some(Entry::Command(_)))).collect();
        if able.is_empty() {
            return Err(fault("streams wait for each other: no command can be next"));
        }
        let drawn = below(able.len());
        if let Some(Entry::Command(Command::Remote(remote))) = able[drawn].front_mut()
            && !remote.step().map_err(fault)?
        {
            return Ok(None);
        }
        let Some(Entry::Command(command)) = able[drawn].pop_front() else { unreachable!("it begins with a command") };
        self.pass_marks();
        Ok(Some(command))
    }

    /// Takes all marks away that are next and hold nothing back.
    fn pass_marks(&mut self) {
        let mut passed = true;
        while passed {
            passed = false;
            for stream in &mut self.streams {
                while let Some(entry) = stream.front() {
                    match *entry {
                        Entry::Record(event, time) => {
                            if let Some(marked) = self.events.get_mut(&event) {
                                marked.reached = marked.reached.max(time);
                            }
                        }
                        Entry::Wait(event, time)
                            if self.events.get(&event).is_none_or(|marked| marked.reached >= time) => {}
                        _ => break,
                    }
                    stream.pop_front();
                    passed = true;
                }
            }
        }
    }

    fn stream(&mut self, stream: Stream) -> Result<&mut VecDeque<Entry>, Fault> {
        self.streams.get_mut(stream.0 as usize).ok_or_else(|| fault(format!("there is no {stream:?}")))
    }

    fn marked(&mut self, event: Event) -> Result<&mut Marked, Fault> {
        self.events.get_mut(&event).ok_or_else(|| fault(format!("there is no {event:?}")))
    }
}
