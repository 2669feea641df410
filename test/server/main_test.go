package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// startServer runs the program and returns the endpoint that it prints.
func startServer(t *testing.T, complaints *testkit.Output, args ...string) string {
	t.Helper()
	out := new(testkit.Output)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, append([]string{"-listen", "127.0.0.1:0"}, args...), out, complaints)
	}()
	t.Cleanup(func() {
		cancel()
		testkit.Is(t, "the end of the server", <-ended, nil)
	})
	var endpoint string
	testkit.Until(t, "the server starts", func() (started bool) {
		_, rest, _ := strings.Cut(out.String(), "endpoint ")
		endpoint, _, started = strings.Cut(rest, "\n")
		return started
	})
	return endpoint
}

func TestServesTheListsOfAFileAndFollowsIt(t *testing.T) {
	file := testkit.Write(t, t.TempDir(), "lists.txt", "se-4b evil.example/ # phishing\nmw-4b harmless.example unconfirmed\n")
	complaints := new(testkit.Output)
	endpoint := startServer(t, complaints, "-lists", file, "-wait", "1ms", "-key", "SECRET")
	client, err := protocol.NewV5(protocol.Config{Endpoint: endpoint, Key: "SECRET", UserAgent: "test/1"})
	testkit.Must(t, err)
	defer client.Close()
	fetched := fetch(t, client, updater.List{Name: "se-4b"}, updater.List{Name: "mw-4b"}, updater.List{Name: "uws-4b"})
	testkit.Equal(t, "entries", [3]int{fetched[0].Set.Len(), fetched[1].Set.Len(), fetched[2].Set.Len()}, [3]int{1, 1, 0})
	evil, harmless := lookup.HashExpression("evil.example/"), lookup.HashExpression("harmless.example/")
	answer, err := client.Search(t.Context(), []lookup.Prefix{evil.Prefix(4), harmless.Prefix(4)})
	testkit.Must(t, err)
	threat := lookup.ThreatHash{Hash: evil, Threats: lookup.Threats(0).With(lookup.SocialEngineering), TTL: time.Minute}
	testkit.Equal(t, "answer", answer, lookup.Answer{TTL: time.Minute, Threats: []lookup.ThreatHash{threat}})

	time.Sleep(10 * time.Millisecond) // the file needs another modification time, and the minimum wait must end
	testkit.Write(t, filepath.Dir(file), "lists.txt", "se-4b evil.example/\nse-4b worse.example/\n")
	testkit.Equal(t, "entries after the file has changed", fetch(t, client, fetched[0])[0].Set.Len(), 2)
	testkit.Equal(t, "complaints", complaints.String(), "")
}

func TestATestServerOfOneProtocolRefusesTheOthers(t *testing.T) {
	file := testkit.Write(t, t.TempDir(), "lists.txt", "se-4b evil.example/\n")
	for only := range paths {
		complaints := new(testkit.Output)
		endpoint := startServer(t, complaints, "-lists", file, "-protocol", only)
		for asked, path := range paths {
			status, body := get(t, endpoint+path)
			if only == asked {
				testkit.Equal(t, only, status, http.StatusOK)
				continue // the same again would be too early
			}
			testkit.Equal(t, only+", asked by "+asked, status, http.StatusNotFound)
			testkit.WantParts(t, body, fmt.Sprintf("this server speaks only protocol %s, and the request is one of protocol %s", only, asked))
			get(t, endpoint+path) // it complains once
		}
		text := complaints.String()
		testkit.WantStart(t, text, "REFUSED: this server speaks only protocol "+only)
		testkit.Equal(t, text+": lines", strings.Count(text, "\n"), 1)
		testkit.Equal(t, text+": it says at the end what to write", strings.HasSuffix(text, "; write protocol "+only+" in the Corefile\n"), true)
	}
}

// paths are what a test asks of each protocol.
var paths = map[string]string{
	"v5":      "/v5/hashLists?alt=proto",
	"webrisk": "/v1/threatLists:computeDiff?constraints.supportedCompressions=RAW&constraints.supportedCompressions=RICE&threatType=MALWARE",
}

// get sends a request, perhaps with cookies, and returns the answer.
func get(t *testing.T, url string, cookies ...*http.Cookie) (status int, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	testkit.Must(t, err)
	r.Header.Set("User-Agent", "test/1")
	for _, c := range cookies {
		r.AddCookie(c)
	}
	answer, err := http.DefaultClient.Do(r)
	testkit.Must(t, err)
	defer answer.Body.Close()
	raw, err := io.ReadAll(answer.Body)
	testkit.Must(t, err)
	return answer.StatusCode, string(raw)
}

func fetch(t *testing.T, client *protocol.V5, lists ...updater.List) (results []updater.List) {
	t.Helper()
	var wanted []updater.Want
	for _, l := range lists {
		wanted = append(wanted, updater.Want{List: l.Name, Version: l.Version})
	}
	results = make([]updater.List, len(lists))
	_, err := client.Fetch(t.Context(), wanted, func(i int, u *updater.Update) {
		var err error
		results[i], _, err = updater.Apply(lists[i], u, 1000)
		testkit.Must(t, err)
	})
	testkit.Must(t, err)
	return results
}

func TestBreakingARuleIsPrinted(t *testing.T) {
	file := testkit.Write(t, t.TempDir(), "lists.txt", "se-4b evil.example/\n")
	complaints := new(testkit.Output)
	endpoint := startServer(t, complaints, "-lists", file)
	client, err := protocol.NewV5(protocol.Config{Endpoint: endpoint, UserAgent: "test/1"})
	testkit.Must(t, err)
	defer client.Close()
	evil := lookup.HashExpression("evil.example/")
	search := func() {
		_, err := client.Search(t.Context(), []lookup.Prefix{evil.Prefix(4)})
		testkit.Must(t, err)
	}
	l := fetch(t, client, updater.List{Name: "se-4b"})
	for _, test := range []struct {
		name       string
		ask        func()
		begin, end string
	}{
		{"an early update", func() { fetch(t, client, l...) }, "RULE BROKEN: Request Frequency, minimum wait: list \"se-4b\" asked for ", " (or the client was restarted and keeps nothing on disk)\n"},
		{"a search", search, "", ""},
		{"the same search", search, "RULE BROKEN: Local List Mode, cache: 1 hash prefix asked for again while the answer is fresh, ", " (or the client was restarted)\n"},
		{"a cookie", func() { get(t, endpoint+paths["v5"], &http.Cookie{Name: "a", Value: "b"}) }, "RULE BROKEN: Privacy: ", " came with cookies\n"},
	} {
		before := complaints.String()
		test.ask()
		got := strings.TrimPrefix(complaints.String(), before)
		if !strings.HasPrefix(got, test.begin) || !strings.HasSuffix(got, test.end) || test.begin == "" && got != "" {
			t.Errorf("%s: %q, want %s … %s", test.name, got, test.begin, test.end)
		}
	}
}

func TestControlCharactersOfAClientAreNotPrinted(t *testing.T) {
	out := new(testkit.Output)
	(&output{w: out, errOut: out}).complain("a \"list\" with \x1b[2J and \n")
	testkit.Equal(t, "printed", out.String(), "a \"list\" with \ufffd[2J and \ufffd\n")
}
