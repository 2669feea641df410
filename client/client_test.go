package client

import (
	"cmp"
	"context"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/prefixset"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

const key = "the-key-of-tests"

// serverWith returns a server with the lists of a Client, and a phishing page that one of them has.
func serverWith(t *testing.T) *protocoltest.Server {
	server := protocoltest.New(t)
	server.Publish("uws-4b", [][]byte{{1, 2, 3, 4}})
	const page = "example.com/login"
	hash, app := lookup.HashExpression(page), lookup.HashExpression("example.net/app")
	server.Publish("se-4b", [][]byte{hash[:4]})
	server.Publish("mw-4b", [][]byte{app[:4]})
	server.AddThreat(page, sbv5.ThreatType_SOCIAL_ENGINEERING)
	server.AddThreat("example.net/app", sbv5.ThreatType_POTENTIALLY_HARMFUL_APPLICATION) // which pha-4b has
	return server
}

// opened returns a Client of the server that runs until the test ends, or stop is called.
func opened(t *testing.T, server *protocoltest.Server, dir string, report func(updater.Event)) (c *Client, stop func()) {
	t.Helper()
	server.SetKey(key)
	c, err := Open(Config{Program: "test/1", Key: key, Folder: dir, Report: report, transport: server})
	testkit.Must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()
	return c, func() {
		cancel()
		testkit.Is(t, "Run", <-ended, context.Canceled)
		c.Close()
	}
}

// check fails the test if the decision about a URL has another verdict.
func check(t *testing.T, c *Client, url string, want lookup.Verdict) lookup.Decision {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	d, err := c.Check(ctx, url)
	testkit.Is(t, url, err, nil)
	testkit.Equal(t, url, d.Verdict.String(), want.String())
	return d
}

func TestAClientChecksURLsAndKeepsTheRules(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		server := serverWith(t)
		c, stop := opened(t, server, dir, nil)
		testkit.Is(t, "before the lists are there", check(t, c, "http://example.com/login", lookup.Unsure).Err, ErrNotReady)
		time.Sleep(time.Minute)
		synctest.Wait()
		begun := time.Now()
		d := check(t, c, "https://user@EXAMPLE.com:8443/%6Cogin?next=1#top", lookup.Unsafe)
		want := []any{lookup.SocialEngineering, "example.com/login", "se-4b", lookup.ByServer}
		testkit.Equal(t, "decision", []any{d.Threat, d.Expression, d.List, d.By}, want)
		testkit.Between(t, "its life", d.Expires.Sub(begun), 0, 30*time.Minute)
		testkit.Equal(t, "who decides again", check(t, c, "example.com/login", lookup.Unsafe).By, lookup.ByCache)
		for _, url := range []string{"example.com", "example.com/", "http://example.com/login/x", "http://10.1.2.3/login", "printer.local"} {
			check(t, c, url, lookup.Safe)
		}
		testkit.Equal(t, "searches for one page that is listed", len(server.Requests("search")), 1)
		check(t, c, "http://example.net/app", lookup.Safe)
		stop()

		server.ClientStarted() // the folder says when it may ask: the server judges that
		c, stop = opened(t, server, dir, nil)
		check(t, c, "http://example.com/login", lookup.Unsafe)
		time.Sleep(24 * time.Hour)
		server.Break("search", 1, protocoltest.SearchFaults()["status 500"])
		time.Sleep(time.Hour)
		testkit.WantError(t, check(t, c, "http://example.com/login", lookup.Unsure).Err)
		stop()
		testkit.Is(t, "closed", check(t, c, "http://example.com/login", lookup.Unsure).Err, lookup.ErrClosed)
	})
}

func TestAClientSaysWhatIsWrongWithItsConfig(t *testing.T) {
	for want, cfg := range map[string]Config{
		"API key":        {Program: "test/1"},
		"Program":        {Key: key},
		"on one line":    {Program: "test/1\n", Key: key}, // as from a file with the version
		"gc-32b":         {Program: "test/1", Key: key, Lists: []string{"gc-32b"}},
		"no-such":        {Program: "test/1", Key: key, Lists: []string{"no-such"}},
		"must be a URL":  {Program: "test/1", Key: key, Endpoint: "/"}, // as $RELAY + "/" is without $RELAY: Google is not meant
		"http":           {Program: "test/1", Endpoint: "ftp://relay.example"},
		"a URL such as":  {Program: "test/1", Endpoint: "https://relay.example,https://other.example"},
		"clear text":     {Program: "test/1", Key: key, Endpoint: "http://relay.example"},
		"would send":     {Program: "test/1", Key: key, Endpoint: "http://[2001:db8::1%25eth0]"},
		"takes no path":  {Program: "test/1", Key: key, Endpoint: "https://safebrowsing.googleapis.com/v5/"},
		"speak":          {Program: "test/1", Key: key, Endpoint: "https://webrisk.googleapis.com"},
		"65535":          {Program: "test/1", Key: key, Endpoint: "https://relay.example:80970"},
		"/dev/null/safe": {Program: "test/1", Key: key, Folder: filepath.Join("/dev/null", "safe")},
	} {
		_, err := Open(cfg)
		testkit.WantError(t, err, want)
	}
	c, err := Open(Config{Program: "test/1", Key: key, Lists: []string{}}) // as strings.Fields makes it of nothing
	testkit.Must(t, err)
	defer c.Close()
	testkit.Equal(t, "lists, as those of a Corefile", c.lists, strings.Fields(config.DefaultLists))
	_, err = c.Check(t.Context(), "http:///login")
	testkit.WantError(t, err)
}

// whileSearched is a server that knows no threats. It does something before it answers a search.
type whileSearched func()

func (do whileSearched) RoundTrip(*http.Request) (*http.Response, error) {
	do()
	return &http.Response{StatusCode: http.StatusOK, Header: make(http.Header), Body: http.NoBody}, nil
}

func TestAListThatComesDuringACheckWasMissing(t *testing.T) {
	list := func(name, expression string) lookup.List {
		hash, b := lookup.HashExpression(expression), prefixset.NewBuilder(1)
		testkit.Must(t, b.Add(hash[:4], 4))
		return lookup.List{Name: name, Set: b.Set()}
	}
	phishing, malware := list("se-4b", "example.com/login"), list("mw-4b", "example.com/")
	var c *Client
	comes := whileSearched(func() { c.database.Publish([]lookup.List{phishing, malware}) })
	c, err := Open(Config{Program: "test/1", Key: key, Lists: []string{"se-4b", "mw-4b"}, transport: comes})
	testkit.Must(t, err)
	defer c.Close()
	c.database.Publish([]lookup.List{phishing})
	testkit.Is(t, "when a list was missing", check(t, c, "http://example.com/login", lookup.Unsure).Err, ErrNotReady)
	check(t, c, "http://example.com/login", lookup.Safe)
}

func TestADamagedScheduleIsReportedAndSendsNothing(t *testing.T) {
	dir := t.TempDir()
	testkit.Write(t, dir, "schedule.json", "{")
	synctest.Test(t, func(t *testing.T) {
		var damaged error
		server := serverWith(t)
		_, stop := opened(t, server, dir, func(e updater.Event) {
			if e.Kind == updater.LoadFailed {
				damaged = cmp.Or(damaged, e.Err)
			}
		})
		time.Sleep(20 * time.Minute)
		testkit.Equal(t, "requests", len(server.Requests("update")), 0)
		stop()
		testkit.WantError(t, damaged, "schedule")
	})
}
