package sharing

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// watcher notes what it is told.
type watcher struct {
	mu      sync.Mutex
	states  []string // "up", or the reason
	done    map[string]int
	dropped int
}

func (w *watcher) Done(operation string, _ time.Duration, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done[fmt.Sprint(operation, " ", err == nil)]++
}

func (w *watcher) Dropped(string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dropped++
}

func (w *watcher) State(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	state := "up"
	if err != nil {
		state = err.Error()
	}
	w.states = append(w.states, state)
}

// count returns how often an operation has ended.
func (w *watcher) count(operation string, succeeded bool) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.done[fmt.Sprint(operation, " ", succeeded)]
}

// seen returns the states so far.
func (w *watcher) seen() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.states)
}

// wait waits for n states and returns them.
func (w *watcher) wait(t testing.TB, n int) []string {
	t.Helper()
	testkit.Until(t, fmt.Sprintf("%d states", n), func() bool { return len(w.seen()) >= n })
	return w.seen()
}

// up waits until Redis is used, and returns the number of states until then: on a busy machine the first connection may take too long.
func (w *watcher) up(t testing.TB) (n int) {
	t.Helper()
	testkit.Until(t, "the use of Redis", func() bool {
		states := w.seen()
		n = len(states)
		return n > 0 && states[n-1] == "up"
	})
	return n
}

// open opens a client that a watcher watches, with a deadline that a busy machine keeps.
func open(t testing.TB, url string, change func(*Config)) (*Client, *watcher) {
	t.Helper()
	target, err := Parse(url)
	testkit.Must(t, err)
	w := &watcher{done: make(map[string]int)}
	cfg := Config{Target: target, Prefix: "safebrowsing:1:{test}:", Deadline: 20 * time.Second, Observer: w}
	if change != nil {
		change(&cfg)
	}
	c, err := Open(cfg)
	testkit.Must(t, err)
	t.Cleanup(c.Close)
	return c, w
}

var increment = NewScript(`return redis.call('INCRBY', KEYS[1], ARGV[1])`)

// add makes the shortest call.
func (c *Client) add() error {
	_, err := c.Fast("increment", increment, []string{c.Key("n")}, "1")
	return err
}

// use calls a client in each way.
func use(t testing.TB, c *Client) {
	t.Helper()
	key := c.Key("n")
	v, err := c.Fast("increment", increment, []string{key}, "2")
	n, ok := v.Int()
	testkit.Equal(t, "the sum", []any{n, ok, err}, []any{int64(2), true, nil})
	c.Later("increment", increment, []string{key}, "3")
	testkit.Until(t, "the write of Later", func() bool {
		v, err := c.Do(t.Context(), "read", "GET", []string{key})
		return err == nil && string(v.Bytes()) == "5"
	})
	v, err = c.Do(t.Context(), "read", "MGET", []string{key, c.Key("none")})
	if all := v.Array(); err != nil || len(all) != 2 || string(all[0].Bytes()) != "5" || !all[1].IsNil() {
		t.Fatalf("Expected 5 and nil, got %v, %v", all, err)
	}
	v, err = c.Do(t.Context(), "read", "GET", []string{c.Key("none")})
	testkit.Equal(t, "no value, and no error", []any{v.IsNil(), err}, []any{true, nil})
	_, err = c.Eval(t.Context(), "increment", increment, []string{key}, "x")
	testkit.WantError(t, err)
}

// works opens a client and calls it in each way.
func works(t *testing.T, url string, change func(*Config)) (*Client, *watcher) {
	t.Helper()
	c, w := open(t, url, change)
	w.up(t)
	use(t, c)
	return c, w
}

func TestOneServer(t *testing.T) {
	t.Parallel()
	s := testkit.StartRedis(t)
	_, w := works(t, s.URL()+"/2", nil)
	testkit.Until(t, "three increments, and the last one failed", func() bool { // one is noted after its answer
		return w.count("increment", true) == 2 && w.count("increment", false) == 1
	})
	testkit.Equal(t, "entries of database 0", s.Do("DBSIZE"), ":0")
}

// Sentinels have a password of their own, and the master's may change.
func TestPasswordsWithSentinels(t *testing.T) {
	long(t)
	master := testkit.StartRedis(t, "--requirepass", "first")
	sentinels := testkit.StartSentinels(t, master, 1, "requirepass sentinel", "sentinel auth-pass main first")
	file := testkit.Write(t, t.TempDir(), "password", "first")
	c, _ := works(t, "redis+sentinel://"+sentinels[0].Addr+"/main", func(cfg *Config) { cfg.PasswordFile, cfg.Sentinels = file, "sentinel" })
	master.Kill()
	testkit.StartRedisAt(t, master.Addr, "--requirepass", "second")
	testkit.Must(t, os.WriteFile(file, []byte("second"), 0o600))
	testkit.Until(t, "a write with the new password", func() bool { return c.add() == nil })
}

func TestPasswordOfAFileThatChanges(t *testing.T) {
	long(t)
	s := testkit.StartRedis(t, "--requirepass", "first")
	file := testkit.Write(t, t.TempDir(), "password", "wr0ng\n")
	c, w := open(t, s.URL(), func(cfg *Config) { cfg.PasswordFile = file })
	if got := w.wait(t, 1); !strings.Contains(got[0], "WRONGPASS") || strings.Contains(got[0], "wr0ng") {
		t.Fatalf("Expected an error about the password that does not tell it, got %q", got)
	}
	if _, err := c.Do(t.Context(), "read", "GET", []string{"x"}); !errors.Is(err, ErrAway) || !strings.Contains(err.Error(), "WRONGPASS") {
		t.Errorf("Expected the reason in the error, got %v", err)
	}
	testkit.Must(t, os.WriteFile(file, []byte("first\n"), 0o600))
	testkit.Equal(t, "the second state", w.wait(t, 2)[1], "up")
	testkit.Must(t, os.Remove(file)) // the connections that there are need none
	before := w.count("probe", true)
	testkit.Until(t, "the next probe", func() bool { return w.count("probe", true) > before || len(w.seen()) > 2 })
	testkit.Equal(t, "Redis stays in use: states", len(w.seen()), 2)
}

// No end waits for a disk that hangs; this test would not end.
func TestTheEndDoesNotWaitForThePasswordFile(t *testing.T) {
	long(t)
	c, _ := open(t, "redis://"+testkit.FreeAddr(t), nil)
	hangs := make(chan struct{})
	defer close(hangs)
	c.wg.Go(func() { <-hangs }) // as the goroutine that connects, and reads the file first
	c.Close()
}

// A pipe in the place of a file would hold the start, and this test, for ever.
func TestFilesOfRedisAreRegular(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	testkit.Must(t, syscall.Mkfifo(pipe, 0o600))
	target, err := Parse("rediss://127.0.0.1")
	testkit.Must(t, err)
	for _, cfg := range []Config{{Target: target, PasswordFile: pipe}, {Target: target, CAFile: pipe}} {
		_, err := Open(cfg)
		testkit.Is(t, "a pipe", err, files.ErrIrregular)
	}
}

// documentedUser makes a user with the rights that docs/fleet.md names.
var documentedUser = []string{"ACL", "SETUSER", "relay", "on", ">secret", "~safebrowsing:*", "&safebrowsing:*", "+@all", "-@admin", "-@dangerous", "+role", "+info"}

func TestUserAndPassword(t *testing.T) {
	t.Parallel()
	s := testkit.StartRedis(t)
	s.Do(documentedUser...)
	s.Do("ACL", "SETUSER", "default", "off")
	c, _ := works(t, strings.Replace(s.URL(), "//", "//relay@", 1), func(cfg *Config) { cfg.Password = "secret" })
	_, err := c.Do(t.Context(), "examine", "INFO", nil) // for the doctor
	testkit.Must(t, err)
}

// Behind Sentinels the library asks for the role of the server.
func TestUserAndPasswordWithSentinels(t *testing.T) {
	long(t)
	master := testkit.StartRedis(t)
	sentinels := testkit.StartSentinels(t, master, 1)
	master.Do(documentedUser...)
	works(t, "redis+sentinel://relay@"+sentinels[0].Addr+"/main", func(cfg *Config) { cfg.Password = "secret" })
}

func TestTLS(t *testing.T) {
	long(t)
	s, ca := testkit.StartRedisTLS(t)
	url := strings.Replace(s.URL(), "redis://", "rediss://", 1)
	_, w := open(t, url, nil)
	testkit.WantParts(t, w.wait(t, 1)[0], "certificate") // that nobody has signed
	works(t, url, func(cfg *Config) { cfg.CAFile = ca })
	target, _ := Parse(url)
	_, err := Open(Config{Target: target, CAFile: "missing.pem"})
	testkit.WantError(t, err, "missing.pem")
}

// The name of Redis is looked up by the resolver of the configuration: the system's may be the CoreDNS that waits for this relay.
func TestOwnResolver(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	open(t, "redis://cache.test", func(cfg *Config) {
		cfg.Resolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
			asked.Add(1)
			return nil, errors.New("no name server")
		}}
	})
	testkit.Until(t, "a question to the resolver", func() bool { return asked.Load() > 0 })
}

// A client that starts before Redis finds it, and so does one whose Redis was killed.
func TestRedisThatComesAndGoes(t *testing.T) {
	long(t)
	s := testkit.StartRedis(t)
	s.Kill()
	c, w := open(t, s.URL(), nil)
	w.wait(t, 1)
	testkit.Is(t, "a call before Redis runs", c.add(), ErrAway)
	s.Restart()
	w.wait(t, 2)
	use(t, c)
	s.Kill()
	for range maxFailures {
		testkit.WantError(t, c.add()) // Redis is dead
	}
	testkit.Is(t, "a call after many failures", c.add(), ErrAway)
	c.Later("increment", increment, []string{"n"}, "1")
	testkit.Equal(t, "writes that were dropped", w.dropped, 1)
	s.Restart()
	got := w.wait(t, 4)
	testkit.Equal(t, "up after away, away, up again, states", []any{got[1], got[2] == "up", got[3], len(got)}, []any{"up", false, "up", 4})
	use(t, c)
}

// A Redis that hangs costs the deadline a few times, and nothing after that.
func TestRedisThatHangs(t *testing.T) {
	long(t)
	s := testkit.StartRedis(t)
	const deadline = 200 * time.Millisecond // of three probes in a row none may be late, or Redis is not used again
	c, w := open(t, s.URL(), func(cfg *Config) { cfg.Deadline = deadline })
	testkit.Until(t, "an answer", func() bool { return c.add() == nil })
	s.Stop()
	begin := time.Now()
	const calls = 1000
	for range calls {
		if c.add() == nil {
			t.Fatal("Expected an error of a Redis that hangs")
		}
	}
	testkit.Between(t, fmt.Sprintf("%d calls wait for %d deadlines", calls, maxFailures), time.Since(begin), 0, calls*deadline/4)
	states := len(w.seen())
	s.Continue()
	testkit.Equal(t, "the next state", w.wait(t, states+1)[states], "up")
}

// Close does not wait for a Redis that hangs.
func TestClose(t *testing.T) {
	t.Parallel()
	s := testkit.StartRedis(t)
	s.Stop()
	c, _ := open(t, s.URL(), nil)
	begin := time.Now()
	c.Close()
	testkit.Between(t, "the end takes", time.Since(begin), 0, 3*time.Second)
}

func TestPauses(t *testing.T) {
	var p pauses
	now := time.Now()
	for _, want := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
		testkit.Equal(t, "a pause", p.next(now), want*time.Second)
	}
	for health, want := range map[time.Duration]time.Duration{maxPause: maxPause, maxPause + 1: minPause} {
		p := pauses{last: maxPause, closed: now}
		testkit.Equal(t, fmt.Sprintf("the pause after %s of health", health), p.next(now.Add(health)), want)
	}
}

// long begins a test that takes long, beside others.
func long(t *testing.T) {
	t.Helper()
	testkit.Long(t)
	t.Parallel()
}

func TestMain(m *testing.M) {
	testkit.SideBySide(12)
	m.Run()
}

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		name, url string
		want      Target
		text      string
	}{
		{"a server", "redis://cache", Target{Addresses: []string{"cache:6379"}}, "cache:6379"},
		{"port and database", "redis://192.0.2.1:7000/3", Target{Addresses: []string{"192.0.2.1:7000"}, DB: 3}, "192.0.2.1:7000"},
		{"IPv6", "redis://[2001:db8::1]:7000", Target{Addresses: []string{"[2001:db8::1]:7000"}}, "[2001:db8::1]:7000"},
		{"IPv6 as Kubernetes writes it", "redis://fd00::1:7000", Target{Addresses: []string{"[fd00::1]:7000"}}, "[fd00::1]:7000"},
		{"TLS and a user", "rediss://relay@cache/", Target{TLS: true, User: "relay", Addresses: []string{"cache:6379"}}, "cache:6379"},
		{"a password", "redis://relay:a%2Fb%40c@cache", Target{User: "relay", Password: "a/b@c", Addresses: []string{"cache:6379"}}, "cache:6379"},
		{"a password without a user", "redis://:a@b@cache", Target{Password: "a@b", Addresses: []string{"cache:6379"}}, "cache:6379"},
		{"Valkey", "valkeys://cache", Target{TLS: true, Addresses: []string{"cache:6379"}}, "cache:6379"},
		{"Sentinels", "redis+sentinel://a,b:7000/main/2", Target{Kind: Sentinel, Addresses: []string{"a:26379", "b:7000"}, Master: "main", DB: 2}, "master main of the Sentinels a:26379, b:7000"},
		{"a cluster", "rediss+cluster://a,b:7000", Target{Kind: Cluster, TLS: true, Addresses: []string{"a:6379", "b:7000"}}, "cluster a:6379, b:7000"},
	} {
		got, err := Parse(tt.url)
		testkit.Equal(t, tt.name, []any{got, got.String(), err}, []any{tt.want, tt.text, nil})
	}
}

func TestParseRefuses(t *testing.T) {
	for _, tt := range []struct{ name, url, want string }{
		{"no scheme", "s3cret@cache:6379", "must begin with redis://"},
		{"another scheme", "http://:s3cret@cache", "must begin with redis://"},
		{"no host", "redis://:s3cret@", "an address that is not HOST"},
		{"a slash in the password", "redis://:s3cret/x@cache", "write / as %2F"},
		{"a question mark in the password", "redis://:s3cret?x@cache", "write them as %3F"},
		{"a bad escape", "redis://:s3cret%zz@cache", "hexadecimal"},
		{"port 0", "redis://:s3cret@cache:0", "a port"},
		{"IPv6 without brackets", "redis://:s3cret@2001:db8::5", "IPv6 in brackets"},
		{"IPv6 without brackets that ends in a letter", "redis://:s3cret@2001:db8::a", "IPv6 in brackets"},
		{"IPv6 of this machine without brackets", "redis://:s3cret@::1", "IPv6 in brackets"},
		{"two servers", "redis://:s3cret@a,b", "several addresses"},
		{"a database that is a word", "redis://:s3cret@cache/s3cret", "not a number"},
		{"Sentinels without a master", "redis+sentinel://:s3cret@a,b", "does not name the master"},
		{"a database of a cluster", "redis+cluster://:s3cret@a/1", "only database 0"},
	} {
		if _, err := Parse(tt.url); err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: Expected an error with %q and no part of the URL, got %v", tt.name, tt.want, err)
		}
	}
}
