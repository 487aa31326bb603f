//! What `prestart` may take back: each row of `core::rewind` with a world in which it decides. db2 was the primary of epoch 6 and died; db1 took
//! over in epoch 7.

use mysql_ha_agent::core::gtid::GtidSet;
use mysql_ha_agent::core::records::MemberState;
use mysql_ha_agent::core::rewind::{
    Ending, FileId, Kind, LastSeen, MayMove, Roles, ServerFiles, Site, Tail, Transaction, Wrote, cut, on_this_host,
    roles,
};
use mysql_ha_agent::core::view::{Ensemble, Node};

use crate::world::{World, primary, uuid};

const LIFE: FileId = FileId { inode: 7, born: 7 };
const WROTE: Wrote = Wrote { epoch: 6, lossless: true, waited: true };

fn seen() -> LastSeen {
    LastSeen {
        cluster: "orders".into(),
        server_uuid: uuid("db2"),
        files: ServerFiles::default(),
        life: LIFE,
        synced: true,
        wrote: Some(WROTE),
        strangers: vec![],
    }
}

fn site(seen: &LastSeen) -> Site<'_> {
    Site {
        seen,
        cluster: "orders",
        server_uuid: Some(&seen.server_uuid),
        life: Some(LIFE),
        file: "binlog.000007",
        in_use: true,
        started_on: Some("binlog.000006"),
    }
}

#[test]
fn this_host_alone_tells_against_it() {
    let noted = seen();
    assert_eq!(on_this_host(&site(&noted)), Ok(WROTE));
    let first_time = Site { started_on: None, ..site(&noted) };
    assert_eq!(on_this_host(&first_time), Ok(WROTE));
    type Change = (&'static str, Kind, fn(&mut LastSeen), fn(&mut Site<'_>));
    let none = |_: &mut LastSeen| {};
    let same = |_: &mut Site<'_>| {};
    let cases: [Change; 13] = [
        ("L4", Kind::Refused, |seen| seen.cluster = "others".into(), same),
        ("L4", Kind::Refused, none, |site| site.server_uuid = Some("another")),
        ("L4", Kind::Refused, none, |site| site.server_uuid = None),
        ("L6", Kind::Nothing, none, |site| site.in_use = false),
        ("L7", Kind::Nothing, |seen| seen.wrote = None, same),
        ("L8", Kind::Refused, none, |site| site.started_on = Some("binlog.000007")),
        ("L9", Kind::Refused, none, |site| site.life = None),
        ("L9", Kind::Refused, none, |site| site.life = Some(FileId { born: 8, ..LIFE })),
        ("L10", Kind::Refused, |seen| seen.wrote = Some(Wrote { lossless: false, ..WROTE }), same),
        ("L10", Kind::Refused, |seen| seen.wrote = Some(Wrote { waited: false, ..WROTE }), same),
        ("L11", Kind::Refused, |seen| seen.synced = false, same),
        ("L12", Kind::Refused, |seen| seen.strangers = vec!["stranger".into()], same),
        // The first that says no is named.
        ("L6", Kind::Nothing, |seen| seen.synced = false, |site| site.in_use = false),
    ];
    for (row, kind, change, move_on) in cases {
        let mut seen = seen();
        change(&mut seen);
        let mut site = site(&seen);
        move_on(&mut site);
        let leave = on_this_host(&site).unwrap_err();
        assert_eq!((leave.row, leave.kind), (row, kind), "{leave:?}");
    }
}

/// db1 holds the role of epoch 7, db3 follows it, each epoch since 3 has all of the one before.
fn taken_over() -> World {
    primary().with(|world| world.topology().kept_since = Some(3))
}

fn told(world: &World, may_move: bool) -> Roles {
    roles(&world.view.ensemble, "db2", &seen(), &WROTE, MayMove(may_move))
}

#[test]
fn another_has_taken_over_and_all_others_follow_it() {
    let Roles::Settled(found) = told(&taken_over(), true) else { panic!("{:?}", told(&taken_over(), true)) };
    assert_eq!((found.name.as_str(), found.server_uuid), ("db1", uuid("db1")));
}

#[test]
fn while_roles_are_unsettled_it_waits_and_else_it_does_not() {
    type Change = fn(&mut World);
    let unsettled: [(&str, Change); 8] = [
        // Nobody has been promoted, or not yet.
        ("C3", |world| world.topology().epoch = 6),
        ("C3", |world| (world.topology().epoch, world.topology().primary) = (6, None)),
        ("C5", |world| world.topology().primary = None),
        ("C5", |world| world.topology().members.get_mut("db1").unwrap().state = MemberState::Na),
        ("C5", |world| world.view.ensemble.master = Node::Absent),
        ("C6", |world| drop(world.view.ensemble.agents.remove("db3"))),
        ("C6", |world| world.agent("db3").source = None),
        ("C6", |world| world.agent("db3").source.as_mut().unwrap().server_uuid = Some(uuid("db2"))),
    ];
    for (row, change) in unsettled {
        let world = taken_over().with(change);
        assert!(
            matches!(told(&world, true), Roles::Unsettled(leave) if leave.row == row),
            "{row}: {:?}",
            told(&world, true)
        );
    }
    let never: [(&str, Change); 7] = [
        ("C2", |world| world.view.ensemble.topology = Node::Absent),
        ("C2", |world| world.topology().members.get_mut("db2").unwrap().server_uuid = "another".into()),
        ("C2", |world| drop(world.topology().members.remove("db2"))),
        ("C4", |world| world.topology().forced = Some(7)),
        ("C4", |world| world.topology().kept_since = None),
        ("C4", |world| world.topology().kept_since = Some(7)),
        // A pause keeps every role where it is.
        ("C3", |world| {
            world.topology().epoch = 6;
            world.lease().paused = Some("op".into());
        }),
    ];
    for (row, change) in never {
        let world = taken_over().with(change);
        assert!(
            matches!(told(&world, true), Roles::Never(leave) if leave.row == row),
            "{row}: {:?}",
            told(&world, true)
        );
    }
    // An older force has lost nothing of ours.
    assert!(matches!(told(&taken_over().with(|world| world.topology().forced = Some(6)), true), Roles::Settled(_)));
    // `manual`, or mysqld is expected back before anybody takes over: nothing is waited for.
    let own = taken_over().with(|world| world.topology().epoch = 6);
    assert!(matches!(told(&own, false), Roles::Never(leave) if leave.row == "C3" && leave.kind == Kind::Nothing));
}

fn gtid(name: &str, number: u64) -> GtidSet {
    format!("{}:{number}", uuid(name)).parse().unwrap()
}

/// The last ones of db2 in the file: 5 and 6 in flight.
fn tail(endings: [Ending; 2]) -> Tail {
    let [first, second] = endings;
    let one = |number, at, ending| Transaction { at, gtid: gtid("db2", number), missing: true, ending };
    Tail {
        previous: gtid("db2", 1),
        head: 158,
        transactions: vec![one(5, 500, first), one(6, 700, second)],
        whole: 900,
        length: 920,
    }
}

fn executed() -> GtidSet {
    format!("{}:1-9,{}:1-4", uuid("db1"), uuid("db2")).parse().unwrap()
}

#[test]
fn what_is_missing_is_cut_where_it_begins() {
    let cut =
        cut(&tail([Ending::Xid, Ending::XaPrepare]), &seen(), &executed(), &Ensemble::default(), (8, 0, 30)).unwrap();
    let gtids: GtidSet = format!("{}:5-6", uuid("db2")).parse().unwrap();
    assert_eq!((cut.at, cut.whole, cut.count, cut.gtids), (500, 900, 2, gtids));
}

#[test]
fn what_the_file_holds_tells_against_it() {
    type Change = (&'static str, fn(&mut Tail), fn(&mut World));
    let same = |_: &mut Tail| {};
    let none = |_: &mut World| {};
    let cases: [Change; 10] = [
        ("T2", |tail| tail.previous = gtid("db2", 5), none),
        ("T2", |tail| tail.previous = gtid("db3", 1), none),
        ("T3", |tail| tail.transactions.clear(), none),
        ("T4", |tail| tail.transactions[1].missing = false, none),
        ("T5", |tail| tail.transactions[1].gtid = gtid("db3", 1), none),
        ("T6", |tail| tail.transactions[0].ending = Ending::Other("a statement".into()), none),
        ("T6", |tail| tail.transactions[1].ending = Ending::Other("compressed".into()), none),
        // 8.0.29 would keep the branch.
        ("T7", |tail| tail.transactions[1].ending = Ending::XaPrepare, none),
        ("T8", same, |world| world.agent("db3").retrieved = gtid("db2", 6)),
        ("T8", same, |world| world.agent("db3").executed = gtid("db2", 5)),
    ];
    for (row, change, elsewhere) in cases {
        let mut tail = tail([Ending::Xid, Ending::Definition]);
        change(&mut tail);
        let world = taken_over().with(elsewhere);
        let leave = cut(&tail, &seen(), &executed(), &world.view.ensemble, (8, 0, 29)).unwrap_err();
        assert_eq!((leave.row, leave.kind == Kind::Nothing), (row, row == "T3"), "{leave:?}");
    }
}

#[test]
fn files_are_found_by_the_servers_variables() {
    let of = |home, data, temp| ServerFiles::of("/var/lib/mysql/", "/log/binlog.index", home, data, temp);
    let default = of(None, "ibdata1:12M:autoextend", "ibtmp1:12M:autoextend").unwrap();
    assert_eq!(
        (default.system.as_str(), default.temporary.as_str()),
        ("/var/lib/mysql/ibdata1", "/var/lib/mysql/ibtmp1")
    );
    let elsewhere = of(Some("/innodb"), "a/ibdata1:1G;ibdata2:1G", "../tmp/ibtmp1:12M").unwrap();
    assert_eq!(
        (elsewhere.system.as_str(), elsewhere.temporary.as_str()),
        ("/innodb/a/ibdata1", "/innodb/../tmp/ibtmp1")
    );
    let absolute = of(Some(""), "/x/ibdata1:1G", "/y/ibtmp1:1G").unwrap();
    assert_eq!((absolute.system.as_str(), absolute.temporary.as_str()), ("/x/ibdata1", "/y/ibtmp1"));
    assert_eq!(of(None, "/dev/sdb1:10Gnewraw", "ibtmp1:12M"), None);
    assert_eq!(ServerFiles::of("", "", None, "ibdata1", "ibtmp1"), None);
}
