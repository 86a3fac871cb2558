//! Who reads the queues of a RabbitMQ.

use lapin::options::QueueDeclareOptions;
use lapin::types::FieldTable;

use super::{Amqp, describe};

impl Amqp {
    /// Which of these queues have no consumer now, or are not there.
    pub(crate) async fn without_consumers(&self, queues: &[String]) -> Result<Vec<String>, String> {
        let broker = self.open().await?;
        // It reads nothing meanwhile, and the connection must not be given up for that.
        if let Some(reason) = broker.is_blocked() {
            broker.finish_cleanly();
            return Err(reason);
        }
        let mut unread = Vec::new();
        for queue in queues {
            // A broker closes the channel on which it was asked for a queue that is not there.
            let channel = broker.connection.create_channel().await;
            let channel = channel.map_err(|error| describe(&error))?;
            let options = QueueDeclareOptions {
                passive: true,
                ..QueueDeclareOptions::default()
            };
            let asked =
                channel.queue_declare(queue.as_str().into(), options, FieldTable::default());
            match asked.await {
                Ok(found) if found.consumer_count() > 0 => {}
                Ok(_) => unread.push(queue.clone()),
                // It may not be this account's to see.
                Err(error) if error.is_amqp_soft_error() => {}
                Err(error) => return Err(describe(&error)),
            }
            let _ = channel.close(200, "".into()).await;
        }
        broker.finish_cleanly();
        Ok(unread)
    }
}
