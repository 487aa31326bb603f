//! The transactions from the first one that another server lacks. One pass, whatever the file's length; what the other has is passed
//! over and not kept.

use std::io::Read;

use super::event::{Event, Events, Fault, Next, kind};
use super::head;
use super::statement::Query;
use crate::core::gtid::GtidSet;
use crate::core::rewind::{Ending, Tail, Transaction};

/// More are not in flight at once: each belongs to a session.
const MOST: usize = 100_000;

/// Reads a file of `length` bytes. `executed`: what the other server has. `late`: whether the time is over.
///
/// # Errors
/// Anything that is not understood.
pub fn read(file: impl Read, length: u64, executed: &GtidSet, mut late: impl FnMut() -> bool) -> Result<Tail, Fault> {
    let mut events = Events::open(file, length)?;
    let head = head::of(&mut events)?;
    let mut reading = Reading {
        executed,
        origin: None,
        previous: None,
        open: None,
        found: Vec::new(),
        head: head.end,
        whole: head.end,
    };
    while let Next::Event(event) = events.read_next()? {
        reading.take(&event)?;
        if late() {
            return Err(Fault::Late);
        }
    }
    let missing_head = Fault::Malformed { at: head.end, why: "it does not say what stands in earlier files" };
    let previous = reading.previous.ok_or(missing_head)?;
    Ok(Tail { previous, head: reading.head, transactions: reading.found, whole: reading.whole, length })
}

struct Reading<'a> {
    executed: &'a GtidSet,
    /// The UUID of the last transaction, as bytes and as text: nearly always the next one's too.
    origin: Option<([u8; 16], String)>,
    previous: Option<GtidSet>,
    /// The transaction that has begun.
    open: Option<Open>,
    found: Vec<Transaction>,
    /// Where the first one stands, or would.
    head: u64,
    /// Where the last whole transaction ended.
    whole: u64,
}

/// A transaction that has begun and not ended.
struct Open {
    at: u64,
    gtid: GtidSet,
    missing: bool,
    /// A statement has begun it that others follow.
    begun: bool,
}

impl Reading<'_> {
    fn take(&mut self, event: &Event) -> Result<(), Fault> {
        let malformed = |why| Fault::Malformed { at: event.at, why };
        match event.kind {
            kind::PREVIOUS_GTIDS if self.previous.is_none() => {
                let set = (!event.long).then(|| previous(&event.body)).flatten();
                self.previous =
                    Some(set.ok_or(malformed("the list of what stands in earlier files is not understood"))?);
                self.head = event.end();
                self.whole = self.head;
                Ok(())
            }
            _ if self.previous.is_none() => Err(malformed("it stands before the list of what stands in earlier files")),
            // Closed: whatever is in flight stands in a later file, and this is not the newest.
            kind::ROTATE | kind::STOP => Err(malformed("the file was closed")),
            kind::GTID if self.open.is_none() => self.begin(event),
            kind::GTID | kind::PREVIOUS_GTIDS => Err(malformed("the transaction before has no end")),
            kind::GTID_TAGGED => Err(malformed("a GTID with a tag, which is not understood")),
            kind::ANONYMOUS_GTID => Err(malformed("a transaction without a GTID")),
            kind::QUERY | kind::XID | kind::XA_PREPARE | kind::TRANSACTION_PAYLOAD => self.statement(event),
            within if kind::WITHIN.contains(&within) => {
                self.open.as_ref().map(|_| ()).ok_or(malformed("it belongs to no transaction"))
            }
            kind => Err(Fault::Unknown { at: event.at, kind }),
        }
    }

    fn begin(&mut self, event: &Event) -> Result<(), Fault> {
        let malformed = Fault::Malformed { at: event.at, why: "its GTID cannot be" };
        let body = &event.body;
        // Flags, UUID, number.
        let (Some(uuid), Some(number)) = (array::<16>(body, 1), array::<8>(body, 17).map(u64::from_le_bytes)) else {
            return Err(malformed);
        };
        let origin = match self.origin.take().filter(|(bytes, _)| *bytes == uuid) {
            Some(origin) => origin,
            None => (uuid, text(&uuid)),
        };
        let missing = !self.executed.includes(&origin.1, number);
        // Only from the first missing one on is anything kept.
        let gtid = match missing || !self.found.is_empty() {
            true => GtidSet::of_intervals([(origin.1.clone(), number, number)]).ok_or(malformed)?,
            false => GtidSet::new(),
        };
        self.origin = Some(origin);
        self.open = Some(Open { at: event.at, gtid, missing, begun: false });
        Ok(())
    }

    fn statement(&mut self, event: &Event) -> Result<(), Fault> {
        let malformed = |why| Fault::Malformed { at: event.at, why };
        let open = self.open.as_mut().ok_or(malformed("it belongs to no transaction"))?;
        let ending = match event.kind {
            kind::XID | kind::XA_PREPARE if !open.begun => {
                return Err(malformed("it ends a transaction that has not begun"));
            }
            kind::XID => Ending::Xid,
            kind::XA_PREPARE => Ending::XaPrepare,
            kind::TRANSACTION_PAYLOAD if open.begun => return Err(malformed("it stands in another transaction")),
            kind::TRANSACTION_PAYLOAD => Ending::Other("compressed (binlog_transaction_compression)".into()),
            _ => {
                let query = Query::read(&event.body).ok_or(malformed("a statement that is not understood"))?;
                if !open.begun && query.begins() {
                    open.begun = true;
                    return Ok(());
                }
                if open.begun && !query.ends() {
                    return Ok(());
                }
                match (open.begun, event.long, query.refused()) {
                    (true, ..) => Ending::Other("a transaction of an engine without transactions".into()),
                    (false, true, _) => Ending::Other("a statement that is too long to be looked at".into()),
                    (false, false, Some(why)) => Ending::Other(why),
                    (false, false, None) => Ending::Definition,
                }
            }
        };
        self.end(event, ending)
    }

    fn end(&mut self, event: &Event, ending: Ending) -> Result<(), Fault> {
        self.whole = event.end();
        let Some(Open { at, gtid, missing, .. }) = self.open.take() else { return Ok(()) };
        if gtid.is_empty() {
            return Ok(());
        }
        if self.found.len() >= MOST {
            return Err(Fault::TooMany(MOST));
        }
        self.found.push(Transaction { at, gtid, missing, ending });
        Ok(())
    }
}

/// How many UUIDs, then for each: its bytes, how many intervals, and these with their ends excluded. None: not understood, or with
/// tags, which another first byte says.
fn previous(body: &[u8]) -> Option<GtidSet> {
    let count = array::<8>(body, 0).map(u64::from_le_bytes)?;
    let (mut at, mut found) = (8, Vec::new());
    for _ in 0..count {
        let uuid = text(&array::<16>(body, at)?);
        let intervals = array::<8>(body, at + 16).map(u64::from_le_bytes)?;
        at += 24;
        for _ in 0..intervals {
            let (from, end) = (u64::from_le_bytes(array(body, at)?), u64::from_le_bytes(array(body, at + 8)?));
            found.push((uuid.clone(), from, end.checked_sub(1)?));
            at += 16;
        }
    }
    if at != body.len() {
        return None;
    }
    GtidSet::of_intervals(found)
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

/// A UUID as MySQL writes it.
fn text(uuid: &[u8; 16]) -> String {
    let hex: Vec<String> = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    [&hex[..4], &hex[4..6], &hex[6..8], &hex[8..10], &hex[10..]].map(|part| part.concat()).join("-")
}
