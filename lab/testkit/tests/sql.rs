//! Statements in short forms, and the errors of tests that use them.

use posthaste_testkit::{PgServer, PgVersion, Sql as _, TestDb, TestResult, connect};

async fn empty() -> TestResult<(TestDb, tokio_postgres::Client)> {
    let database = TestDb::empty(PgServer::shared(PgVersion::any())?).await?;
    let client = connect(database.url()).await?;
    Ok((database, client))
}

#[tokio::test]
async fn rows_are_values_or_tuples() -> TestResult {
    let (_database, mut client) = empty().await?;
    client
        .run("CREATE TABLE note (id bigint, body text); INSERT INTO note VALUES (1, 'a')")
        .await?;
    let transaction = client.transaction().await?;
    transaction.run("INSERT INTO note VALUES (2, NULL)").await?;
    let all: Vec<(i64, Option<String>)> =
        transaction.rows("SELECT * FROM note ORDER BY id").await?;
    assert_eq!(all, [(1, Some("a".to_owned())), (2, None)]);
    transaction.rollback().await?;
    assert_eq!(client.one::<i64>("SELECT count(*) FROM note").await?, 1);
    let body = client
        .one_with::<String>("SELECT body FROM note WHERE id = $1", &[&1_i64])
        .await?;
    assert_eq!(body, "a");
    let above = "SELECT id FROM note WHERE id > $1";
    let above: Vec<i64> = client.rows_with(above, &[&1_i64]).await?;
    assert!(above.is_empty(), "{above:?}");
    Ok(())
}

#[tokio::test]
async fn errors_include_the_line_and_the_statement() -> TestResult {
    let (_database, client) = empty().await?;
    let failing = async || -> TestResult {
        client.run("SELECT missing").await?;
        Ok(())
    };
    let line = line!() - 3;
    let error = format!("{:?}", failing().await.err());
    let place = format!("{}:{line}:", file!());
    for part in [
        &*place,
        "SELECT missing",
        "column \"missing\" does not exist",
    ] {
        assert!(error.contains(part), "{part} is not in {error}");
    }
    // Two rows, no row, and a column of another type.
    for wrong in [
        "VALUES (1::bigint), (2)",
        "SELECT 1::bigint WHERE false",
        "SELECT 'a'",
    ] {
        let refused = client.one::<i64>(wrong).await.err();
        let refused = refused.map(|error| error.to_string());
        assert_eq!(refused.as_deref(), Some(wrong));
    }
    Ok(())
}
