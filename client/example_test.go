package client_test

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/client"
)

// A checker: it says of each URL that is typed whether that is a threat. In its first minute or two it has no lists, and
// all are unsure. A program that reads a file waits while Err is client.ErrNotReady.
func Example() {
	c, err := client.Open(client.Config{Program: "checker/1.0", Key: os.Getenv("SAFEBROWSING_API_KEY"), Folder: "/var/lib/checker"})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	go c.Run(context.Background())
	for urls := bufio.NewScanner(os.Stdin); urls.Scan(); {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		decision, err := c.Check(ctx, urls.Text())
		cancel()
		fmt.Println(urls.Text(), decision.Verdict, decision.Threat, cmp.Or(err, decision.Err))
	}
}
