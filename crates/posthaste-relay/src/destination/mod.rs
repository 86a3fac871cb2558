//! Destinations of messages: the interface, and one file for each.

#[cfg(feature = "amqp")]
pub(crate) mod amqp;
pub(crate) mod answer;
#[cfg(feature = "asynq")]
pub(crate) mod asynq;
#[cfg(feature = "bullmq")]
pub(crate) mod bullmq;
#[cfg(any(feature = "celery-rabbitmq", feature = "celery-redis"))]
pub(crate) mod celery;
pub(crate) mod contract;
#[cfg(any(feature = "celery-rabbitmq", feature = "redis"))]
#[cfg(test)]
pub(crate) mod golden;
#[cfg(feature = "kafka")]
pub(crate) mod kafka;
pub(crate) mod lines;
#[cfg(feature = "nats")]
pub(crate) mod nats;
#[cfg(any(feature = "smtp", feature = "webhook"))]
pub(crate) mod partial_answers;
#[cfg(any(feature = "amqp", feature = "nats"))]
pub(crate) mod pipeline;
#[cfg(feature = "rabbitmq")]
pub(crate) mod rabbitmq;
pub(crate) mod reason;
#[cfg(feature = "redis")]
pub(crate) mod redis;
#[cfg(any(
    feature = "asynq",
    feature = "bullmq",
    feature = "celery-rabbitmq",
    feature = "celery-redis",
    feature = "nats"
))]
pub(crate) mod retention;
#[cfg(any(feature = "amqp", feature = "kafka", feature = "nats"))]
pub(crate) mod shared_connection;
#[cfg(feature = "sidekiq")]
pub(crate) mod sidekiq;
#[cfg(feature = "smtp")]
pub(crate) mod smtp;
#[cfg(feature = "webhook")]
pub(crate) mod webhook;
