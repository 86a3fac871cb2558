//! The faults of relays, of their links and of the receivers' servers.

use std::time::Duration;

use anyhow::bail;
use posthaste_testkit::Proxy;
use tokio::task::block_in_place;
use tokio::time::sleep;

use super::Behind;
use crate::history::{Kind, Moment};
use crate::round::faults::Struck;
use crate::round::stage::WORKERS;

/// How long a relay may wait for data that a half-open connection has lost, in microseconds.
const SILENCE: Moment = 6_000_000;

impl Behind {
    pub(in crate::round) async fn strike(
        &self,
        kind: Kind,
        chance: &mut fastrand::Rng,
    ) -> anyhow::Result<Struck> {
        match kind {
            Kind::RelayCut => self.cut(chance).await,
            Kind::RelayHalfOpen => self.half_open(chance).await,
            Kind::RedisKill => {
                block_in_place(|| self.kept.kill9())?;
                sleep(millis(chance, 0..500)).await;
                block_in_place(|| self.kept.restart())?;
                Ok(Struck::one("kept".into()))
            }
            Kind::RedisLoss => self.lose(chance).await,
            Kind::RedisFull => {
                let room = |bytes: &str| self.kept.ask(&["CONFIG", "SET", "maxmemory", bytes]);
                block_in_place(|| room("1"))?;
                sleep(millis(chance, 100..1_500)).await;
                block_in_place(|| room("0"))?;
                Ok(Struck::one("kept".into()))
            }
            Kind::RabbitMqKill => {
                block_in_place(|| self.rabbitmq.kill9())?;
                sleep(millis(chance, 0..500)).await;
                block_in_place(|| self.rabbitmq.restart())?;
                Ok(Struck::one("rabbitmq".into()))
            }
            _ => bail!("nothing that is done to relays"),
        }
    }

    fn link(&self, chance: &mut fastrand::Rng) -> (&Proxy, Struck) {
        let place = chance.usize(0..WORKERS);
        let links = &self.links[place];
        let link = &links[chance.usize(0..links.len())];
        (link, Struck::one(format!("w{place}")))
    }

    async fn cut(&self, chance: &mut fastrand::Rng) -> anyhow::Result<Struck> {
        let (link, struck) = self.link(chance);
        if chance.bool() {
            link.reset();
        } else {
            link.cut().await;
            sleep(millis(chance, 0..400)).await;
            link.restore().await?;
        }
        Ok(struck)
    }

    /// Half of the half-open connections are reset later; the others never are.
    async fn half_open(&self, chance: &mut fastrand::Rng) -> anyhow::Result<Struck> {
        let (link, struck) = self.link(chance);
        link.half_open();
        sleep(millis(chance, 50..3_000)).await;
        link.restore().await?;
        if chance.bool() {
            link.reset();
            return Ok(struck);
        }
        Ok(struck.beyond(SILENCE))
    }

    async fn lose(&self, chance: &mut fastrand::Rng) -> anyhow::Result<Struck> {
        if chance.bool() {
            block_in_place(|| self.forgetful.ask(&["FLUSHALL"]))?;
        } else {
            block_in_place(|| self.forgetful.kill9())?;
            sleep(millis(chance, 0..300)).await;
            block_in_place(|| self.forgetful.restart())?;
        }
        Ok(Struck::one("forgetful".into()))
    }
}

fn millis(chance: &mut fastrand::Rng, range: std::ops::Range<u64>) -> Duration {
    Duration::from_millis(chance.u64(range))
}
