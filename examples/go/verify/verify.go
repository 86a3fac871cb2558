// Checks the signature of a request from `posthaste work --http` or a webhook route.
//
// WEBHOOK_SECRET=whsec_… go run ./verify WEBHOOK_ID WEBHOOK_TIMESTAMP WEBHOOK_SIGNATURE < BODY
package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// body is the raw body, before a framework parses it.
func isSigned(secret string, headers http.Header, body []byte) bool {
	timestamp := headers.Get("webhook-timestamp")
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil || time.Since(time.Unix(seconds, 0)).Abs() > 5*time.Minute {
		return false // an old request that somebody sends again
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		return false
	}
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.", headers.Get("webhook-id"), timestamp)
	mac.Write(body)
	expected := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	// Two while a secret is rotated.
	for _, signature := range strings.Fields(headers.Get("webhook-signature")) {
		if hmac.Equal([]byte(signature), []byte(expected)) {
			return true
		}
	}
	return false
}

func main() {
	body, err := io.ReadAll(os.Stdin)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	headers := http.Header{}
	headers.Set("webhook-id", os.Args[1])
	headers.Set("webhook-timestamp", os.Args[2])
	headers.Set("webhook-signature", os.Args[3])
	if isSigned(os.Getenv("WEBHOOK_SECRET"), headers, body) {
		fmt.Println("signed")
	} else {
		fmt.Println("refused")
	}
}
