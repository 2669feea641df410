package client_test

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/client"
)

// A checker: it says of each URL on the standard input whether that is a threat.
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
		fmt.Println(urls.Text(), decision.Verdict, decision.Threat, err)
	}
}
