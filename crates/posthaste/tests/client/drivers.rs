//! The operations in transactions of sqlx, diesel-async and sea-orm.

use diesel_async::{AsyncConnection, AsyncPgConnection};
use posthaste_testkit::{PgVersion, ran};
use sea_orm::TransactionTrait;
use sqlx::Connection;

use super::shared::{everything, no_job_remains_unfinished};
use crate::support::database;

#[tokio::test]
async fn every_operation_works_in_a_transaction_of_sqlx() {
    for version in PgVersion::tried() {
        let db = database(version).await;
        let mut connection = sqlx::PgConnection::connect(db.url()).await.unwrap();
        let mut tx = connection.begin().await.unwrap();
        everything(&mut *tx).await;
        tx.rollback().await.unwrap();
        let mut tx = connection.begin().await.unwrap();
        everything(posthaste::Unnamed(&mut *tx)).await;
        tx.rollback().await.unwrap();
        no_job_remains_unfinished(&db.client().await.unwrap()).await;
        ran::note("sqlx");
    }
}

#[tokio::test]
async fn every_operation_works_in_a_transaction_of_diesel_async() {
    for version in PgVersion::tried() {
        let db = database(version).await;
        let mut connection = AsyncPgConnection::establish(db.url()).await.unwrap();
        let undone = connection
            .transaction(async |tx| {
                everything(tx).await;
                Err::<(), _>(diesel::result::Error::RollbackTransaction)
            })
            .await;
        assert!(undone.is_err());
        no_job_remains_unfinished(&db.client().await.unwrap()).await;
        ran::note("diesel-async");
    }
}

#[tokio::test]
async fn every_operation_works_in_a_transaction_of_sea_orm() {
    for version in PgVersion::tried() {
        let db = database(version).await;
        let connection = sea_orm::Database::connect(db.url()).await.unwrap();
        let tx = connection.begin().await.unwrap();
        everything(&tx).await;
        tx.rollback().await.unwrap();
        no_job_remains_unfinished(&db.client().await.unwrap()).await;
        ran::note("sea-orm");
    }
}
