//! Servers stop, crash and restart with everything that they had committed.

use posthaste_testkit::{PgServer, PgVersion, connect, is_alive};

async fn ask(url: &str, question: &str) -> anyhow::Result<String> {
    Ok(connect(url).await?.query_one(question, &[]).await?.get(0))
}

async fn commit_a_row(server: &PgServer) -> anyhow::Result<()> {
    let client = connect(&server.url("postgres")).await?;
    Ok(client
        .batch_execute("CREATE TABLE note AS SELECT 'kept' AS body")
        .await?)
}

#[tokio::test]
async fn every_version_runs_with_the_settings_that_tests_rely_on() -> anyhow::Result<()> {
    for version in PgVersion::ALL {
        let server = PgServer::shared(version)?;
        let url = server.url("postgres");
        let number = ask(&url, "SHOW server_version_num").await?;
        assert_eq!(format!("pg{}", &number[..2]), server.version().name());
        for (setting, value) in [
            ("fsync", "on"),
            ("jit", "on"),
            ("max_prepared_transactions", "64"),
            ("unix_socket_directories", ""),
        ] {
            assert_eq!(
                ask(&url, &format!("SHOW {setting}")).await?,
                value,
                "{setting} of {}",
                version.name()
            );
        }
    }
    Ok(())
}

#[tokio::test]
async fn tests_share_one_server() -> anyhow::Result<()> {
    assert_eq!(
        PgServer::shared(PgVersion::V15)?.pid(),
        PgServer::shared(PgVersion::V15)?.pid()
    );
    Ok(())
}

#[tokio::test]
async fn committed_rows_survive_an_immediate_stop_a_fast_stop_and_sigkill() -> anyhow::Result<()> {
    for version in PgVersion::ALL {
        let server = PgServer::start(version, &[])?;
        commit_a_row(&server).await?;
        let stops: [fn(&PgServer) -> anyhow::Result<()>; 3] = [
            PgServer::stop_immediate,
            PgServer::stop_fast,
            PgServer::kill9,
        ];
        for stop in stops {
            let (address, pid) = (server.address(), server.pid().unwrap());
            stop(&server)?;
            assert_eq!(server.pid(), None);
            assert!(!is_alive(pid));
            assert!(connect(&server.url("postgres")).await.is_err());
            server.restart()?;
            assert_eq!(server.address(), address);
            assert_eq!(
                ask(&server.url("postgres"), "SELECT body FROM note").await?,
                "kept"
            );
        }
    }
    Ok(())
}

#[tokio::test]
async fn settings_of_a_test_override_defaults() -> anyhow::Result<()> {
    let server = PgServer::start(PgVersion::V15, &[("jit", "off"), ("max_connections", "20")])?;
    assert_eq!(ask(&server.url("postgres"), "SHOW jit").await?, "off");
    assert_eq!(
        ask(&server.url("postgres"), "SHOW max_connections").await?,
        "20"
    );
    Ok(())
}

#[tokio::test]
async fn rejected_settings_are_reported_with_the_reason() {
    let error = PgServer::start(PgVersion::V15, &[("no_such_setting", "1")]).unwrap_err();
    assert!(
        format!("{error:#}").contains("no_such_setting"),
        "{error:#}"
    );
}

#[tokio::test]
async fn a_dropped_server_leaves_neither_process_nor_folder() -> anyhow::Result<()> {
    for killed in [false, true] {
        let server = PgServer::start(PgVersion::V15, &[])?;
        let (pid, data) = (server.pid().unwrap(), server.data());
        if killed {
            server.kill9()?;
        }
        drop(server);
        assert!(!is_alive(pid));
        assert!(!data.parent().unwrap().exists());
    }
    Ok(())
}

#[tokio::test]
async fn a_replica_follows_and_can_be_promoted() -> anyhow::Result<()> {
    for version in PgVersion::ALL {
        let primary = PgServer::start(version, &[])?;
        commit_a_row(&primary).await?;
        let replica = primary.start_replica(&[])?;
        let url = replica.url("postgres");
        assert_eq!(ask(&url, "SELECT body FROM note").await?, "kept");
        assert_eq!(ask(&url, "SELECT pg_is_in_recovery()::text").await?, "true");
        primary.stop_immediate()?;
        assert_eq!(ask(&url, "SELECT pg_promote()::text").await?, "true");
        connect(&url)
            .await?
            .batch_execute("INSERT INTO note VALUES ('after')")
            .await?;
    }
    Ok(())
}

#[test]
fn client_tools_find_their_server() -> anyhow::Result<()> {
    for version in PgVersion::ALL {
        let server = PgServer::shared(version)?;
        for tool in ["pg_dump", "pgbench", "psql"] {
            let output = server.tool(tool).arg("--version").output()?;
            assert!(output.status.success(), "{tool} of {}", version.name());
        }
        let dump = server.tool("pg_dump").arg("postgres").output()?;
        assert!(String::from_utf8(dump.stdout)?.contains("PostgreSQL database dump complete"));
    }
    Ok(())
}
