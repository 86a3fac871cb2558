//! The decision whether a process may work a store, as a table of all its cases.

use posthaste_testkit::{PgVersion, TestResult};

use crate::support::connected;

/// The names of the store's site and of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Names {
    None,
    Same,
    Different,
    /// Only the store's site has a name.
    Store,
    /// Only the process has a name.
    Process,
}

/// The rule again, as the documentation states it.
fn may_work(
    names: Names,
    is_known_address: bool,
    is_running: bool,
    is_same_life: bool,
    is_same_endpoint: bool,
    was_admitted: bool,
) -> bool {
    let followed = is_running || was_admitted;
    let stopped_in_order = is_same_life && (is_known_address || is_same_endpoint);
    match names {
        Names::Same => true,
        Names::Different => false,
        Names::None => followed || is_known_address || stopped_in_order,
        Names::Store | Names::Process => followed || stopped_in_order,
    }
}

#[tokio::test]
async fn site_ownership_follows_the_documented_rule_in_all_cases() -> TestResult {
    let (_db, client) = connected(PgVersion::any()).await?;
    let judge = client
        .prepare("SELECT posthaste.is_own_site($1, $2, $3, $4, $5, $6, $7)")
        .await?;
    let all = [
        (Names::None, None, None),
        (Names::Same, Some("a"), Some("a")),
        (Names::Different, Some("a"), Some("b")),
        (Names::Store, Some("a"), None),
        (Names::Process, None, Some("a")),
    ];
    for (names, known, here) in all {
        for bits in 0..32 {
            let [address, running, life, endpoint, admitted] =
                [1, 2, 4, 8, 16].map(|bit| bits & bit != 0);
            let may: bool = client
                .query_one(
                    &judge,
                    &[
                        &known, &here, &address, &running, &life, &endpoint, &admitted,
                    ],
                )
                .await?
                .get(0);
            assert_eq!(
                may,
                may_work(names, address, running, life, endpoint, admitted),
                "{names:?}: address {address}, running {running}, life {life}, \
                 endpoint {endpoint}, admitted {admitted}"
            );
        }
    }
    Ok(())
}
