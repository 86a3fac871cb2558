// An effect that happens once for each delivery, with pgx.
//
// DATABASE_URL=postgres://… go run ./receive DELIVERY_ID NAME CARD
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5"
)

func handle(
	ctx context.Context, conn *pgx.Conn, deliveryID, name, card string,
) (isFirst bool, err error) {
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, "SELECT posthaste.receive($1)", deliveryID).Scan(&isFirst)
		if err != nil || !isFirst {
			return err
		}
		_, err = tx.Exec(ctx, "INSERT INTO customer (name, remind_at) VALUES ($1, now())", name)
		if err != nil {
			return err
		}
		return charge(card) // an error takes the receipt back too: the next delivery is the first again
	})
	return isFirst, err
}

func charge(card string) error {
	if card == "declined" {
		return errors.New("the card was declined")
	}
	return nil
}

func main() {
	if err := run(context.Background(), os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, deliveryID, name, card string) error {
	conn, err := pgx.Connect(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	isFirst, err := handle(ctx, conn, deliveryID, name, card)
	if err != nil {
		return err
	}
	if isFirst {
		fmt.Println("first")
	} else {
		fmt.Println("again")
	}
	return nil
}
