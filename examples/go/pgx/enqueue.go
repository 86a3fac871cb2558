// A customer and two jobs in one transaction, with pgx.
//
// DATABASE_URL=postgres://… go run ./pgx NAME CARD
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
)

func signUp(ctx context.Context, conn *pgx.Conn, name, card string) error {
	remindAt := time.Now().Add(24 * time.Hour)
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		var customer, welcome, reminder int64
		err := tx.QueryRow(ctx,
			"INSERT INTO customer (name, remind_at) VALUES ($1, $2) RETURNING id",
			name, remindAt).Scan(&customer)
		if err != nil {
			return err
		}
		err = tx.QueryRow(ctx,
			"SELECT posthaste.enqueue($1, $2)",
			"mail.welcome", map[string]any{"customer": customer, "to": name}).Scan(&welcome)
		if err != nil {
			return err
		}
		err = tx.QueryRow(ctx,
			"SELECT posthaste.enqueue($1, $2, queue => $3, scheduled_at => $4)",
			"mail.reminder", map[string]any{"customer": customer}, "reminders", remindAt).Scan(&reminder)
		if err != nil {
			return err
		}
		fmt.Println(welcome, reminder)
		return charge(card) // an error takes the customer and both jobs back
	})
}

func charge(card string) error {
	if card == "declined" {
		return errors.New("the card was declined")
	}
	return nil
}

func main() {
	if err := run(context.Background(), os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, name, card string) error {
	conn, err := pgx.Connect(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	return signUp(ctx, conn, name, card)
}
