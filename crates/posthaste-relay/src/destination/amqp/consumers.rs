//! The consumers of RabbitMQ's queues.

use lapin::options::QueueDeclareOptions;
use lapin::types::FieldTable;

use super::{Amqp, describe_error};

impl Amqp {
    /// Returns which of these queues have no consumer now. A queue that does not exist, or that the
    /// account may not see, is left out.
    pub(crate) async fn queues_without_consumers(
        &self,
        queues: &[String],
    ) -> Result<Vec<String>, String> {
        let broker = self.open().await?;
        // A blocked broker reads nothing, and the connection must not be dropped for that.
        if let Some(reason) = broker.blocked_reason() {
            broker.finish_cleanly();
            return Err(reason);
        }
        let mut unread = Vec::new();
        for queue in queues {
            // The broker closes the channel if the queue does not exist.
            let channel = broker.connection.create_channel().await;
            let channel = channel.map_err(|error| describe_error(&error))?;
            let options = QueueDeclareOptions {
                passive: true,
                ..QueueDeclareOptions::default()
            };
            let asked =
                channel.queue_declare(queue.as_str().into(), options, FieldTable::default());
            match asked.await {
                Ok(found) if found.consumer_count() > 0 => {}
                Ok(_) => unread.push(queue.clone()),
                // The queue does not exist, or the account may not see it.
                Err(error) if error.is_amqp_soft_error() => {}
                Err(error) => return Err(describe_error(&error)),
            }
            let _ = channel.close(200, "".into()).await;
        }
        broker.finish_cleanly();
        Ok(unread)
    }
}
