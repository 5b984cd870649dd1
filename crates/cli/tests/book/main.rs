//! The book in `docs/`, the README and the other documents: what they show is run and compared, what they name exists, and
//! what they list is complete.
//!
//! | fenced block | meaning |
//! |---|---|
//! | `sh` | every line is a `quadrille` command that ends with exit code 0, or with N where it ends in `# exit code N` |
//! | `sh,not-tested` | is not run; [`run::NOT_TESTED`] counts these blocks for each page |
//! | `console` | the line after `$ ` is run likewise, and must print what follows; `...` stands for any text, alone in a line for any lines |
//! | any other with `file=NAME` | is that file for the commands below it on the page |

mod complete;
mod help;
mod links;
mod page;
mod run;
