//! Memory that passes take and leave.

/// Bytes while passes are told.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Footprint {
    now: i64,
    most: i64,
}

impl Footprint {
    /// Of something that is held.
    pub fn held(bytes: i64) -> Self {
        Self { now: bytes, most: bytes.max(0) }
    }

    pub fn take(&mut self, bytes: u64) {
        self.now += bytes as i64;
        self.most = self.most.max(self.now);
    }

    pub fn give(&mut self, bytes: u64) {
        self.now -= bytes as i64;
    }

    /// What has been taken and not given back.
    pub fn net(&self) -> i64 {
        self.now
    }

    /// The most at any time.
    pub fn most(&self) -> i64 {
        self.most
    }

    /// This `times` after each other, then `next`.
    pub fn then(self, times: i64, next: Self) -> Self {
        match times {
            0 => next,
            _ => {
                // Each adds the same: the first or the last has the most.
                let last = (times - 1) * self.now;
                let most = self.most.max(last + self.most);
                Self { now: times * self.now + next.now, most: most.max(times * self.now + next.most) }
            }
        }
    }

    /// The same while so many bytes more are taken.
    pub fn above(self, bytes: i64) -> Self {
        Self { now: self.now, most: self.most + bytes }
    }

    /// The same, of which so many bytes are not given back in the end.
    pub fn keeping(self, bytes: i64) -> Self {
        let now = self.now + bytes;
        Self { now, most: self.most.max(now) }
    }

    /// The same, at the end of which so many bytes more are held; all of them at the time of the most.
    pub fn leaving(self, bytes: i64) -> Self {
        Self { now: self.now + bytes, most: self.most + bytes.max(0) }
    }
}
