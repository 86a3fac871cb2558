// What asynq's client enqueues: asynq CASE; without one it lists the cases.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"github.com/hibiken/asynq"
)

const id = "018f3c9e-7b1a-7c2d-9e3f-4a5b6c7d8e9f"

type input struct {
	Type    string            `json:"type"`
	Payload string            `json:"payload"`
	Headers map[string]string `json:"headers,omitempty"`
	// In seconds; the times are Unix times.
	Queue     string `json:"queue,omitempty"`
	MaxRetry  *int   `json:"max_retry,omitempty"`
	Timeout   int64  `json:"timeout,omitempty"`
	Deadline  int64  `json:"deadline,omitempty"`
	Retention int64  `json:"retention,omitempty"`
	Unique    int64  `json:"unique,omitempty"`
	ProcessAt int64  `json:"process_at,omitempty"`
	Group     string `json:"group,omitempty"`
	Twice     bool   `json:"twice,omitempty"`
}

var none, three = 0, 3

var cases = map[string]input{
	"immediate":    {Type: "mail:send", Payload: `{"to":"a@example.com","n":1}`},
	"queue":        {Type: "mail:send", Payload: `[1]`, Queue: "mail"},
	"empty":        {Type: "mail:send"},
	"unicode":      {Type: "mail:ü", Payload: `["日本 🚀"]`, Queue: "mail"},
	"big integers": {Type: "mail:send", Payload: `[9007199254740993,18446744073709551616]`},
	"options":      {Type: "mail:send", Payload: `[1]`, Queue: "mail", MaxRetry: &three, Timeout: 60, Deadline: 4102444800, Retention: 86400},
	"no retries":   {Type: "mail:send", Payload: `[1]`, MaxRetry: &none},
	"deadline":     {Type: "mail:send", Payload: `[1]`, Deadline: 4102444800},
	"headers":      {Type: "mail:send", Payload: `[1]`, Headers: map[string]string{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}},
	"scheduled":    {Type: "mail:send", Payload: `[1]`, Queue: "mail", ProcessAt: 4102444800},
	"unique":       {Type: "mail:send", Payload: `[1]`, Unique: 3600},
	"group":        {Type: "mail:send", Payload: `[1]`, Group: "g"},
	"twice":        {Type: "mail:send", Payload: `[1]`, Retention: 86400, Twice: true},
}

func main() {
	if len(os.Args) == 1 {
		fail(json.NewEncoder(os.Stdout).Encode(cases))
		return
	}
	redis, err := asynq.ParseRedisURI(os.Getenv("REDIS_URL"))
	fail(err)
	client := asynq.NewClient(redis)
	one := cases[os.Args[1]]
	task := asynq.NewTaskWithHeaders(one.Type, []byte(one.Payload), one.Headers)
	_, err = client.Enqueue(task, options(one)...)
	fail(err)
	if one.Twice {
		_, err = client.Enqueue(task, options(one)...)
		fmt.Println(err)
	}
	build, _ := debug.ReadBuildInfo()
	for _, module := range build.Deps {
		if module.Path == "github.com/hibiken/asynq" {
			fmt.Fprintln(os.Stderr, "asynq", module.Version)
		}
	}
}

func options(one input) []asynq.Option {
	all := []asynq.Option{asynq.TaskID(id)}
	if one.Queue != "" {
		all = append(all, asynq.Queue(one.Queue))
	}
	if one.MaxRetry != nil {
		all = append(all, asynq.MaxRetry(*one.MaxRetry))
	}
	if one.Timeout != 0 {
		all = append(all, asynq.Timeout(time.Duration(one.Timeout)*time.Second))
	}
	if one.Deadline != 0 {
		all = append(all, asynq.Deadline(time.Unix(one.Deadline, 0)))
	}
	if one.Retention != 0 {
		all = append(all, asynq.Retention(time.Duration(one.Retention)*time.Second))
	}
	if one.Unique != 0 {
		all = append(all, asynq.Unique(time.Duration(one.Unique)*time.Second))
	}
	if one.ProcessAt != 0 {
		all = append(all, asynq.ProcessAt(time.Unix(one.ProcessAt, 0)))
	}
	if one.Group != "" {
		all = append(all, asynq.Group(one.Group))
	}
	return all
}

func fail(err error) {
	if err != nil {
		panic(err)
	}
}
