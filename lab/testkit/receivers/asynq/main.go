// Runs tasks of any type, and writes one line for each. With arguments it is a client and enqueues one: QUEUE ID TYPE PAYLOAD.
package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"log"
	"os"
	"strings"
	"time"

	"github.com/hibiken/asynq"
)

func main() {
	redis, err := asynq.ParseRedisURI(os.Getenv("REDIS_URL"))
	if err != nil {
		log.Fatal(err)
	}
	if len(os.Args) > 1 {
		enqueue(redis, os.Args[1:])
	} else {
		work(redis)
	}
}

func enqueue(redis asynq.RedisConnOpt, task []string) {
	client := asynq.NewClient(redis)
	defer client.Close()
	_, err := client.Enqueue(asynq.NewTask(task[2], []byte(task[3])), asynq.Queue(task[0]), asynq.TaskID(task[1]))
	if err != nil {
		log.Fatal(err)
	}
}

func work(redis asynq.RedisConnOpt) {
	effects, err := os.OpenFile(os.Getenv("POSTHASTE_EFFECTS"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		log.Fatal(err)
	}
	queues := map[string]int{}
	for _, name := range strings.Split(os.Getenv("POSTHASTE_QUEUES"), ",") {
		queues[name] = 1
	}
	server := asynq.NewServer(redis, asynq.Config{
		Concurrency:              4,
		Queues:                   queues,
		DelayedTaskCheckInterval: time.Second,
		TaskCheckInterval:        50 * time.Millisecond,
		ShutdownTimeout:          time.Second,
		LogLevel:                 asynq.InfoLevel,
	})
	err = server.Run(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		queue, _ := asynq.GetQueueName(ctx)
		retried, _ := asynq.GetRetryCount(ctx)
		most, _ := asynq.GetMaxRetry(ctx)
		line, err := json.Marshal(map[string]any{
			"id": id, "name": task.Type(), "args": payload(task.Payload()), "queue": queue,
			"headers": task.Headers(), "retried": retried, "max_retry": most,
			"payload": base64.StdEncoding.EncodeToString(task.Payload()),
		})
		if err != nil {
			return err
		}
		// One write of one line in append mode: lines of several tasks never mix.
		if _, err := effects.Write(append(line, '\n')); err != nil {
			return err
		}
		return effects.Sync()
	}))
	if err != nil {
		log.Fatal(err)
	}
}

// As JSON where it is that, with its numbers as they were written.
func payload(bytes []byte) any {
	if json.Valid(bytes) {
		return json.RawMessage(bytes)
	}
	return nil
}
