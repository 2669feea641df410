package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// output is written to by the server and read by the test.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// startServer runs the command and returns the endpoint that it prints.
func startServer(t *testing.T, errors *output, args ...string) string {
	t.Helper()
	out := new(output)
	c := command()
	c.Writer, c.ErrWriter = out, errors
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- c.Run(ctx, append([]string{"safebrowsing", "testserver", "-listen", "127.0.0.1:0"}, args...))
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	for range 1000 {
		if _, rest, ok := strings.Cut(out.String(), "endpoint "); ok {
			endpoint, _, _ := strings.Cut(rest, "\n")
			return endpoint
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("the server did not start: %s", out)
	return ""
}

func TestServesTheListsOfAFileAndFollowsIt(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lists.txt")
	write(t, file, "se-4b evil.example/ # phishing\nmw-4b harmless.example unconfirmed\n")
	complaints := new(output)
	endpoint := startServer(t, complaints, "-lists", file, "-wait", "1ms", "-key", "K")
	client, err := protocol.NewV5(protocol.Config{Endpoint: endpoint, Key: "K", UserAgent: "test/1"})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	fetched := fetch(t, client, updater.List{Name: "se-4b"}, updater.List{Name: "mw-4b"}, updater.List{Name: "uws-4b"})
	for i, want := range []int{1, 1, 0} {
		if got := fetched[i].Set.Len(); got != want {
			t.Errorf("list %s has %d entries, want %d", fetched[i].Name, got, want)
		}
	}
	evil, harmless := lookup.HashExpression("evil.example/"), lookup.HashExpression("harmless.example/")
	answer, err := client.Search(t.Context(), []lookup.Prefix{evil.Prefix(4), harmless.Prefix(4)})
	if err != nil || len(answer.Threats) != 1 || answer.Threats[0].Hash != evil || answer.Life != time.Minute {
		t.Errorf("got %+v, %v, want that one of two is a threat, for a minute", answer, err)
	}

	time.Sleep(10 * time.Millisecond) // for another time of modification, and the minimum wait
	write(t, file, "se-4b evil.example/\nse-4b worse.example/\n")
	if again := fetch(t, client, fetched[0]); again[0].Set.Len() != 2 {
		t.Errorf("after the file has changed the list has %d entries, want 2", again[0].Set.Len())
	}
	write(t, file, "se-4b\n")
	time.Sleep(10 * time.Millisecond)
	fetch(t, client, updater.List{Name: "mw-4b"})
	if text := complaints.String(); text != "" && !strings.Contains(text, "the lists stay as they were") {
		t.Errorf("the server complains: %s", text)
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// fetch asks for lists and applies what comes.
func fetch(t *testing.T, client *protocol.V5, lists ...updater.List) (results []updater.List) {
	t.Helper()
	var wanted []updater.Want
	for _, l := range lists {
		wanted = append(wanted, updater.Want{List: l.Name, Version: l.Version})
	}
	results = make([]updater.List, len(lists))
	_, err := client.Fetch(t.Context(), wanted, func(i int, u *updater.Update) {
		var err error
		if results[i], _, err = updater.Apply(lists[i], u, 1000); err != nil {
			t.Fatal(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return results
}

func TestBreakingARuleIsPrinted(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lists.txt")
	write(t, file, "se-4b evil.example/\n")
	complaints := new(output)
	endpoint := startServer(t, complaints, "-lists", file)
	client, err := protocol.NewV5(protocol.Config{Endpoint: endpoint, UserAgent: "test/1"})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	l := fetch(t, client, updater.List{Name: "se-4b"})
	fetch(t, client, l...)
	if text := complaints.String(); !strings.Contains(text, "RULE BROKEN") || !strings.Contains(text, "minimum wait") {
		t.Errorf("want a line about the minimum wait, got %q", text)
	}
}

func TestMisuseIsExplained(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	bad := filepath.Join(t.TempDir(), "bad.txt")
	write(t, bad, "se-4b good.example/\nnonsense\n")
	good := filepath.Join(t.TempDir(), "good.txt")
	write(t, good, "se-4b good.example/\n")
	for _, tc := range []struct{ args, want string }{
		{"testserver", "lists"},
		{"testserver -lists /no/such/file", "no such file"},
		{"testserver -lists " + bad, "2"},
		{"testserver -lists " + good + " surplus", "surplus"},
		{"testserver -lists " + good + " -listen " + taken.Addr().String(), "in use"},
	} {
		c := command()
		c.Writer, c.ErrWriter = new(output), new(output)
		err := c.Run(t.Context(), append([]string{"safebrowsing"}, strings.Fields(tc.args)...))
		if err == nil || !strings.Contains(fmt.Sprint(err), tc.want) {
			t.Errorf("%s: got %v, want an error with %q", tc.args, err, tc.want)
		}
	}
}
