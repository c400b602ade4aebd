//! What a worker asks for when it claims its next tasks.

use super::scan_start::ScanStart;

/// The worker as a claim knows it.
#[derive(Clone, Debug)]
pub struct Claimant {
    pub group: Vec<u8>,
    /// The `max` and the start of its first task, and how many tasks it has run.
    pub max: i32,
    pub started: Vec<u8>,
    pub executed: u32,
    pub remote: Option<RemoteClaimant>,
    /// Runs of one job, or plain tasks: never mixed.
    pub job: Option<Vec<u8>>,
}

/// A worker with a session on a remote: its next task runs there too.
#[derive(Clone, Debug)]
pub struct RemoteClaimant {
    pub remote: Vec<u8>,
    pub pid: String,
    pub name: String,
}

/// How many tasks it claims at once, and from where on it scans.
#[derive(Clone, Copy, Debug)]
pub struct NextClaim<'a> {
    pub claimant: &'a Claimant,
    pub size: usize,
    pub scan_start: Option<ScanStart>,
}

/// The numbers of a request as texts of parameters.
pub(super) struct ClaimNumbers {
    max: String,
    executed: String,
    size: String,
    scan_start: Option<[String; 3]>,
}

impl ClaimNumbers {
    pub(super) fn new(request: NextClaim<'_>) -> ClaimNumbers {
        let claimant = request.claimant;
        ClaimNumbers {
            max: claimant.max.to_string(),
            executed: claimant.executed.to_string(),
            size: request.size.to_string(),
            scan_start: request.scan_start.map(ScanStart::numbers),
        }
    }

    /// The parameters of `claim_next.sql`.
    pub(super) fn params<'a>(&'a self, request: NextClaim<'a>) -> Vec<Option<&'a [u8]>> {
        let (claimant, remote) = (request.claimant, request.claimant.remote.as_ref());
        let own = [
            Some(&claimant.group[..]),
            Some(self.max.as_bytes()),
            Some(self.executed.as_bytes()),
            Some(&claimant.started[..]),
            remote.map(|remote| &remote.remote[..]),
            remote.map(|remote| remote.pid.as_bytes()),
            remote.map(|remote| remote.name.as_bytes()),
            claimant.job.as_deref(),
            Some(self.size.as_bytes()),
        ];
        let scan_start = self.scan_start.iter().flatten().map(|number| Some(number.as_bytes()));
        own.into_iter().chain(scan_start).collect()
    }
}
