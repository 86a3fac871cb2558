// River as a peer of posthaste-bench: the verbs are those of lab/bench/peers/README.md.
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// Rows of one COPY.
const copied = 10_000

type noop struct {
	N int64 `json:"n"`
}

func (noop) Kind() string { return "noop" }

type worker struct {
	river.WorkerDefaults[noop]
	started func(int64)
}

func (w *worker) Work(_ context.Context, job *river.Job[noop]) error {
	w.started(job.Args.N)
	return nil
}

type client = river.Client[pgx.Tx]

func main() {
	ctx := context.Background()
	if err := obey(ctx, os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func obey(ctx context.Context, verb string, given []string) error {
	numbers := make([]int64, 4)
	for at, text := range given {
		if number, err := strconv.ParseInt(text, 10, 64); err == nil {
			numbers[at] = number
		}
	}
	switch verb {
	case "setup":
		return setup(ctx)
	case "single":
		return single(ctx, int(numbers[0]), time.Duration(numbers[1])*time.Second)
	case "bulk":
		return bulk(ctx, numbers[0])
	case "drain":
		return drain(ctx, numbers[0])
	case "work":
		return work(ctx, given[0])
	case "offer":
		return offer(ctx, numbers, given[4])
	}
	return fmt.Errorf("unknown verb %s", verb)
}

func setup(ctx context.Context) error {
	pool, err := connect(ctx, 2)
	if err != nil {
		return err
	}
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err != nil {
		return err
	}
	if _, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == "github.com/riverqueue/river" {
			fmt.Println("version", strings.TrimPrefix(module.Version, "v"))
		}
	}
	return nil
}

func single(ctx context.Context, conns int, lasts time.Duration) error {
	producer, _, err := producer(ctx, conns)
	if err != nil {
		return err
	}
	var count atomic.Int64
	fmt.Println("begin")
	end := time.Now().Add(lasts)
	err = together(conns, func(int) error {
		for time.Now().Before(end) {
			if _, err := producer.Insert(ctx, noop{count.Add(1)}, nil); err != nil {
				return err
			}
		}
		return nil
	})
	fmt.Println("end", count.Load())
	return err
}

func bulk(ctx context.Context, rows int64) error {
	producer, _, err := producer(ctx, 1)
	if err != nil {
		return err
	}
	fmt.Println("begin")
	for first := int64(1); first <= rows; first += copied {
		last := min(first+copied-1, rows)
		if _, err := producer.InsertManyFast(ctx, jobs(first, last)); err != nil {
			return err
		}
	}
	fmt.Println("end", rows)
	return nil
}

func drain(ctx context.Context, wanted int64) error {
	var count atomic.Int64
	reached := make(chan struct{})
	fmt.Println("begin")
	crew, err := start(ctx, func(int64) {
		if count.Add(1) == wanted {
			close(reached)
		}
	})
	if err != nil {
		return err
	}
	<-reached
	fmt.Println("reached")
	if err := crew.Stop(ctx); err != nil {
		return err
	}
	fmt.Println("end", count.Load())
	return nil
}

func work(ctx context.Context, file string) error {
	var lock sync.Mutex
	var seen []string
	crew, err := start(ctx, func(number int64) {
		line := fmt.Sprintf("%d %d\n", number, now())
		lock.Lock()
		seen = append(seen, line)
		lock.Unlock()
	})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	if err := crew.Stop(ctx); err != nil {
		return err
	}
	return write(file, seen)
}

func offer(ctx context.Context, numbers []int64, file string) error {
	rate, each, conns := numbers[0], numbers[2], int(numbers[3])
	producer, pool, err := producer(ctx, conns)
	if err != nil {
		return err
	}
	var lock sync.Mutex
	var seen []string
	period := time.Duration(int64(time.Second) * each * int64(conns) / rate)
	begun := time.Now()
	end := begun.Add(time.Duration(numbers[1]) * time.Second)
	err = together(conns, func(place int) error {
		due := begun.Add(period * time.Duration(place) / time.Duration(conns))
		for first := int64(place+1)*1_000_000_000 + 1; due.Before(end); first += each {
			time.Sleep(time.Until(due))
			if !time.Now().Before(end) {
				return nil
			}
			began := now()
			if err := commit(ctx, producer, pool, first, each); err != nil {
				return err
			}
			committed := now()
			lock.Lock()
			for number := first; number < first+each; number++ {
				seen = append(seen, fmt.Sprintf("%d %d %d\n", number, began, committed))
			}
			lock.Unlock()
			due = due.Add(period)
		}
		return nil
	})
	if err != nil {
		return err
	}
	fmt.Println("end", len(seen))
	return write(file, seen)
}

func commit(ctx context.Context, producer *client, pool *pgxpool.Pool, first, each int64) error {
	if each == 1 {
		_, err := producer.Insert(ctx, noop{first}, nil)
		return err
	}
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		_, err := producer.InsertManyFastTx(ctx, tx, jobs(first, first+each-1))
		return err
	})
}

func jobs(first, last int64) []river.InsertManyParams {
	all := make([]river.InsertManyParams, 0, last-first+1)
	for number := first; number <= last; number++ {
		all = append(all, river.InsertManyParams{Args: noop{number}})
	}
	return all
}

func start(ctx context.Context, started func(int64)) (*client, error) {
	pool, err := connect(ctx, 8)
	if err != nil {
		return nil, err
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, &worker{started: started})
	crew, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		FetchCooldown: 2 * time.Millisecond,
		Logger:        quiet(),
		Queues:        map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 2_000}},
		Workers:       workers,
	})
	if err != nil {
		return nil, err
	}
	return crew, crew.Start(ctx)
}

func producer(ctx context.Context, conns int) (*client, *pgxpool.Pool, error) {
	pool, err := connect(ctx, conns)
	if err != nil {
		return nil, nil, err
	}
	config := &river.Config{FetchCooldown: 2 * time.Millisecond, Logger: quiet()}
	producer, err := river.NewClient(riverpgxv5.New(pool), config)
	return producer, pool, err
}

func connect(ctx context.Context, conns int) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(os.Getenv("DATABASE_URL"))
	if err != nil {
		return nil, err
	}
	config.MaxConns, config.MinConns = int32(conns), int32(conns)
	return pgxpool.NewWithConfig(ctx, config)
}

func together(count int, task func(int) error) error {
	outcomes := make(chan error, count)
	for place := range count {
		go func() { outcomes <- task(place) }()
	}
	var failed error
	for range count {
		if err := <-outcomes; err != nil {
			failed = err
		}
	}
	return failed
}

func write(file string, lines []string) error {
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	buffer := bufio.NewWriter(out)
	for _, line := range lines {
		_, _ = buffer.WriteString(line)
	}
	if err := buffer.Flush(); err != nil {
		return err
	}
	return out.Close()
}

func now() int64 { return time.Now().UnixMicro() }

func quiet() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
}
