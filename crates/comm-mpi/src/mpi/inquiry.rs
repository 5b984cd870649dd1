//! Who is late: a rank that waits for long asks the others how far they have come, and finds from their answers that one has
//! returned, that calls do not fit together, or after the job's timeout who does not come and where it is.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use quadrille_comm::transport::Job;
use quadrille_comm::{Activity, Call, CollectiveError, Group, Late};
use quadrille_panics::lock;

use crate::mpi::messages::Messages;
use crate::mpi::packet::{ActivityText, Answer, CallText, ChannelKey, Packet, Question, no_answer};
use crate::mpi::port::Port;

/// After so long a wait the others are asked, and from then on as often; so long for every [`PER_ASK`] others.
const ASK: Duration = Duration::from_secs(2);

/// A thousand ranks that ask each other every two seconds would do nothing else.
const PER_ASK: usize = 64;

/// So long answers are waited for.
const ANSWERS: Duration = Duration::from_secs(1);

/// How often it is looked whether all answers are there.
const LOOK: Duration = Duration::from_millis(10);

/// Answers to questions under way, by the question's number.
#[derive(Default)]
pub(super) struct Inquiries {
    numbers: AtomicU64,
    answers: Mutex<BTreeMap<u64, BTreeMap<usize, Answer>>>,
    /// The group and number of the collective that this rank has waited in for long.
    waits_in: Mutex<Option<(u64, u64)>>,
}

impl Inquiries {
    fn open(&self) -> u64 {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        lock(&self.answers).insert(number, BTreeMap::new());
        number
    }

    /// Notes an answer, unless it comes too late.
    pub(super) fn answered(&self, number: u64, rank: usize, answer: Answer) {
        if let Some(answers) = lock(&self.answers).get_mut(&number) {
            answers.insert(rank, answer);
        }
    }

    fn count(&self, number: u64) -> usize {
        lock(&self.answers).get(&number).map_or(0, BTreeMap::len)
    }

    fn close(&self, number: u64) -> BTreeMap<usize, Answer> {
        lock(&self.answers).remove(&number).unwrap_or_default()
    }
}

/// What is wrong with a wait: the rank to blame, what it was doing, and the error.
pub(super) type Fault = (usize, Activity, CollectiveError);

/// A rank's wait in a collective or for a message.
pub(super) struct Wait {
    group: Group,
    call: Call,
    sequence: u64,
    /// Of a message, as this rank sees it.
    channel: Option<ChannelKey>,
    since: Instant,
    next: Option<Instant>,
    asked: Option<(u64, Instant)>,
}

impl Wait {
    pub(super) fn new(group: &Group, call: &Call, sequence: u64, channel: Option<ChannelKey>) -> Self {
        let since = Instant::now();
        Self { group: group.clone(), call: *call, sequence, channel, since, next: None, asked: None }
    }

    /// Something came.
    pub(super) fn progressed(&mut self) {
        self.since = Instant::now();
        self.next = None;
    }

    /// The ranks that may be waited for.
    fn others(&self) -> Vec<usize> {
        let members = self.group.members().iter().copied();
        match self.channel {
            Some(channel) => vec![channel.other],
            None => members.filter(|rank| *rank != self.group.rank()).collect(),
        }
    }

    /// How often the others are asked.
    fn period(&self) -> Duration {
        let others = if self.channel.is_some() { 1 } else { self.group.size() };
        ASK * (1 + others / PER_ASK) as u32
    }

    /// Looks after a wait: asks, takes answers, judges. Cheap while nothing is due.
    pub(super) fn look(&mut self, port: &Port, job: &Job) -> Option<Fault> {
        let now = Instant::now();
        let first = self.since + self.period().min(job.timeout());
        if now < *self.next.get_or_insert(first) {
            return None;
        }
        let Some((number, asked)) = self.asked else {
            self.ask(port, job, now);
            return None;
        };
        self.next = Some(now + LOOK);
        let complete = port.inquiries.count(number) == self.others().len();
        if !complete && now - asked < ANSWERS {
            return None;
        }
        self.asked = None;
        let last = asked.saturating_duration_since(self.since) >= job.timeout();
        // Asked again after a while, and once when the timeout is over.
        let end = self.since + job.timeout();
        self.next = Some(if now < end { end.min(now + self.period()) } else { now });
        self.judge(port, job, &port.inquiries.close(number), last)
    }

    fn ask(&mut self, port: &Port, job: &Job, now: Instant) {
        let number = port.inquiries.open();
        let channel = self.channel.map(|channel| ChannelKey { other: port.rank, sends: !channel.sends, ..channel });
        if self.channel.is_none() {
            *lock(&port.inquiries.waits_in) = Some((self.group.key(), self.sequence));
        }
        let question = Question { number, job: job.number(), group: self.group.key(), channel };
        for rank in self.others() {
            port.tell(rank, Packet::Ask(question.clone()));
        }
        self.asked = Some((number, now));
        self.next = Some(now + LOOK);
    }

    fn judge(&self, port: &Port, job: &Job, answers: &BTreeMap<usize, Answer>, last: bool) -> Option<Fault> {
        let current = |answer: &Answer| answer.job == job.number();
        let came = |answer: &Answer| current(answer) && answer.issued >= self.sequence;
        let departed = answers.iter().find(|(_, answer)| current(answer) && answer.left && !came(answer));
        if let Some((rank, answer)) = departed {
            let error = CollectiveError::Departed {
                group: self.group.shared_name(),
                sequence: self.sequence,
                call: Box::new(self.call),
                waiting: vec![port.rank],
                departed: *rank,
            };
            return Some((*rank, answer.activity.read(&port.names), error));
        }
        self.mismatch(port, answers).or_else(|| last.then(|| self.stuck(port, answers, came)))
    }

    /// Another member waits in the same collective with a call that does not fit.
    fn mismatch(&self, port: &Port, answers: &BTreeMap<usize, Answer>) -> Option<Fault> {
        let here = Some((self.group.key(), self.sequence));
        let waiting = answers.iter().filter(|(_, answer)| self.channel.is_none() && answer.waits_in == here);
        let mut calls =
            waiting.filter_map(|(rank, answer)| Some((*rank, answer.busy_with.as_ref()?.1.read(&port.names))));
        let first = calls.find(|(_, call)| !self.call.looks_like(call))?;
        let error = CollectiveError::Mismatch {
            group: self.group.shared_name(),
            sequence: self.sequence,
            first: Box::new(first),
            second: Box::new((port.rank, self.call)),
        };
        Some((port.rank, self.call.activity, error))
    }

    fn stuck(&self, port: &Port, answers: &BTreeMap<usize, Answer>, came: impl Fn(&Answer) -> bool) -> Fault {
        let here = Some((self.group.key(), self.sequence));
        let (arrived, mut missing): (Vec<usize>, Vec<usize>) =
            self.others().into_iter().partition(|rank| answers.get(rank).is_some_and(&came));
        if missing.is_empty() {
            // All have issued it: late are those who are not in it.
            missing = arrived.iter().copied().filter(|rank| answers[rank].waits_in != here).collect();
        }
        if missing.is_empty() {
            missing.clone_from(&arrived);
        }
        let late = |rank: &usize| match answers.get(rank) {
            None => Late { rank: *rank, activity: no_answer(), issued: 0, busy_with: None },
            Some(answer) => Late {
                rank: *rank,
                activity: answer.activity.read(&port.names),
                issued: answer.issued,
                busy_with: answer.busy_with.as_ref().map(|(group, call)| (Arc::from(&**group), call.read(&port.names))),
            },
        };
        let late: Vec<Late> = missing.iter().map(late).collect();
        let mut arrived: Vec<usize> = arrived.into_iter().filter(|rank| !missing.contains(rank)).collect();
        arrived.push(port.rank);
        arrived.sort_unstable();
        let (rank, activity) = late.first().map_or((port.rank, self.call.activity), |late| (late.rank, late.activity));
        let error = CollectiveError::Stuck {
            group: self.group.shared_name(),
            sequence: self.sequence,
            call: Box::new(self.call),
            waited: self.since.elapsed(),
            arrived,
            late,
        };
        (rank, activity, error)
    }

    /// The wait is over.
    pub(super) fn end(self, port: &Port) {
        if let Some((number, _)) = self.asked {
            port.inquiries.close(number);
        }
        if self.channel.is_none() {
            *lock(&port.inquiries.waits_in) = None;
        }
    }
}

/// Answers another rank's question.
pub(super) fn answer(port: &Port, messages: &Messages, question: &Question) -> Answer {
    let Some(job) = port.job() else {
        let activity = ActivityText::of(&Activity::BETWEEN_JOBS);
        return Answer { job: 0, left: false, activity, issued: 0, busy_with: None, waits_in: None };
    };
    let issued = match question.channel {
        Some(channel) => messages.posted(&channel),
        None => job.issued_on(question.group, port.rank),
    };
    Answer {
        job: job.number(),
        left: job.has_left(port.rank),
        activity: ActivityText::of(&job.activity(port.rank)),
        issued,
        busy_with: job.busy_with(port.rank).map(|(group, call)| (group.to_string(), CallText::of(&call))),
        waits_in: *lock(&port.inquiries.waits_in),
    }
}
