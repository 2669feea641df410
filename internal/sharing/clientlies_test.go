package sharing

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// liar is a Redis that tells lies: raw answers by the name of a command. The rest it answers as Redis does.
type liar struct {
	Addr string
	ends atomic.Int32 // connections that the other side has closed

	mu    sync.Mutex
	lies  map[string]string // "*" is for all but greetings; guarded by mu
	asked map[string]int    // commands by name; guarded by mu
}

func startLiar(t testing.TB) *liar {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	l := &liar{Addr: listener.Addr().String(), asked: make(map[string]int)}
	var wg sync.WaitGroup
	var open sync.Map
	wg.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			open.Store(c, nil)
			wg.Go(func() {
				defer open.Delete(c)
				defer c.Close()
				l.serve(c)
				l.ends.Add(1)
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		open.Range(func(c, _ any) bool { c.(net.Conn).Close(); return true })
		wg.Wait()
	})
	return l
}

// lie sets what is told from now on: nothing wrong if lies is nil.
func (l *liar) lie(lies map[string]string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lies = lies
}

// count returns how often a command has come.
func (l *liar) count(name string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.asked[name]
}

// answer returns the raw answer to a command.
func (l *liar) answer(words []word) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	name := strings.ToUpper(string(words[0]))
	l.asked[name]++
	lie, lies := l.lies[name]
	if !lies && name != "HELLO" && name != "CLIENT" && name != "CLUSTER" {
		lie, lies = l.lies["*"]
	}
	if lies {
		return lie
	}
	host, port, _ := net.SplitHostPort(l.Addr)
	switch name {
	case "HELLO":
		return "%2\r\n$5\r\nproto\r\n:3\r\n$7\r\nversion\r\n$5\r\n7.2.0\r\n"
	case "PING":
		return "+PONG\r\n"
	case "SUBSCRIBE", "UNSUBSCRIBE":
		var text strings.Builder
		for _, channel := range words[1:] {
			fmt.Fprintf(&text, ">3\r\n+%s\r\n+%s\r\n:1\r\n", strings.ToLower(name), channel)
		}
		return text.String()
	case "CLUSTER":
		return fmt.Sprintf("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$%d\r\n%s\r\n:%s\r\n", len(host), host, port)
	case "SENTINEL":
		if string(words[1]) == "SENTINELS" {
			return "*0\r\n"
		}
		return fmt.Sprintf("*2\r\n+%s\r\n+%s\r\n", host, port)
	case "ROLE":
		return "*3\r\n+master\r\n:0\r\n*0\r\n"
	}
	return "+OK\r\n"
}

// endless in an answer is repeated until the other side closes the connection. hangUp ends the connection.
const (
	endless = "{endless}"
	hangUp  = "{hang up}"
)

// serve answers commands until the connection ends.
func (l *liar) serve(c net.Conn) {
	commands := scanner{end: func(m *message) error {
		raw, last := strings.CutSuffix(l.answer(m.words[:min(m.n, keptWords)]), hangUp)
		first, repeat, forEver := strings.Cut(raw, endless)
		_, err := io.WriteString(c, first)
		if last {
			return io.EOF
		}
		for repeat = strings.Repeat(repeat, 1+(64<<10)/(len(repeat)+1)); forEver && err == nil; {
			_, err = io.WriteString(c, repeat)
		}
		return err
	}}
	p := make([]byte, 16<<10)
	for n, err := 0, error(nil); err == nil; {
		if n, err = c.Read(p); err == nil {
			err = commands.scan(p[:n])
		}
	}
}

// A Redis that lies costs a connection, not the process and not its memory; when it is honest again, it is used again.
func TestARedisThatLiesCostsAConnection(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, lie, want string }{
		{"a bulk longer than memory", "$4611686018427387904\r\n", "a length"},
		{"a bulk longer than any value", "$500000000\r\n" + endless + "x", "a string of 500000000 bytes"},
		{"a bulk that does not end", "$4\r\n" + endless + "abcd", "longer than its 4 bytes"},
		{"a bulk in chunks without end", "$?\r\n" + endless + ";4\r\nabcd\r\n", "a length"},
		{"a line that does not end", "+" + endless + "x", "a line has more"},
		{"an array longer than memory", "*2000000000\r\n", "a length"},
		{"an array longer than any answer", "*500000000\r\n" + endless + ":1\r\n", "500000000 elements"},
		{"an array without end", "*?\r\n" + endless + ":1\r\n", "a length"},
		{"many long strings", "*1000\r\n" + endless + "$1000000\r\n" + strings.Repeat("x", 1000000) + "\r\n", "a string of"},
		{"many long lines", "*60000\r\n" + endless + "+" + strings.Repeat("x", 16000) + "\r\n", "bytes of lines"},
		{"nested arrays", endless + "*1\r\n", "nested"},
		{"a negative length of a string", "$-2\r\n", "a length"},
		{"a negative length of an array", "*-9000000000000000000\r\n", "a length"},
		{"a negative length of a map", "%-1\r\n", "a length"},
		{"a push without a length", ">-1\r\n", "a length"},
		{"an attribute", "|1\r\n+a\r\n+b\r\n+OK\r\n", "begins with"},
		{"a null with text", "_:1\r\n\r\n", "a null"},
		{"two answers", "+OK\r\n+OK\r\n", "nobody asked for"},
		{"a subscription that nobody asked for", ">3\r\n+subscribe\r\n+x\r\n:1\r\n", "nobody asked for"},
		{"a push in an array", "*1\r\n>2\r\n+message\r\n+x\r\n", "a push"},
		{"another protocol", "HTTP/1.1 400 Bad Request\r\n", "begins with"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := startLiar(t)
			c, w := open(t, "redis://"+l.Addr, nil)
			w.up(t)
			ends := l.ends.Load()
			l.lie(map[string]string{"*": tt.lie})
			if v, err := c.Do(t.Context(), "read", "GET", []string{c.Key("n")}); err == nil && tt.want != "nobody asked for" || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Expected an error with %q, got %v, %v", tt.want, v, err)
			}
			testkit.Until(t, "that the connection is closed", func() bool { return l.ends.Load() > ends })
			l.lie(nil)
			testkit.Until(t, "an answer of a Redis that is honest again", func() bool {
				_, err := c.Do(t.Context(), "read", "GET", []string{c.Key("n")})
				return err == nil
			})
		})
	}
}

// One goroutine reads and another one writes when a connection is closed for a lie: both tell of the lie.
func TestALieIsToldInsteadOfTheEndThatFollows(t *testing.T) {
	opened := func() (*connection, net.Conn) {
		ours, theirs := net.Pipe()
		return &connection{Conn: ours, guard: newGuard(), stop: func() bool { return true }}, theirs
	}
	c, theirs := opened()
	go func() { _, _ = io.WriteString(theirs, "HTTP/1.1 400 Bad Request\r\n") }() // ends with c
	_, _ = c.Read(make([]byte, 100))
	_, err := c.Write([]byte("*1\r\n$4\r\nPING\r\n"))
	testkit.Is(t, "a write after a lie", err, errLies)
	c, _ = opened()
	read := make(chan error, 1)
	go func() { _, err := c.Read(make([]byte, 100)); read <- err }()
	_, _ = c.Write([]byte("*2\r\n$5\r\nHELLO\r\n$1\r\n2\r\n"))
	testkit.Is(t, "a read", <-read, errRESP2)
}

// A cluster whose nodes redirect to themselves gets a bounded number of calls, and is left alone.
func TestARedirectToItselfIsFollowedAFewTimes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ kind, want string }{
		{"-MOVED 1 ADDRESS\r\n", "MOVED"}, {"-ASK 1 ADDRESS\r\n", "ASK"}, {"-MOVED\r\n", errLies.Error()}, {"-ASK 1\r\n", errLies.Error()},
	} {
		t.Run(strings.TrimSpace(tt.kind), func(t *testing.T) {
			t.Parallel()
			l := startLiar(t)
			c, w := open(t, "redis+cluster://"+l.Addr, nil)
			n := w.up(t)
			lie := strings.ReplaceAll(tt.kind, "ADDRESS", l.Addr)
			l.lie(map[string]string{"GET": lie, "EVALSHA": lie})
			_, err := c.Do(t.Context(), "read", "GET", []string{c.Key("n")})
			testkit.WantError(t, err)
			testkit.Between(t, "calls", l.count("GET"), 1, 1+maxRedirects)
			for range maxFailures {
				_ = c.add() // it fails
			}
			testkit.WantParts(t, w.wait(t, n+1)[n], strings.Fields(tt.want)[0]) // why Redis is left alone
			if err := c.add(); err != ErrAway {
				t.Errorf("Expected no call of a Redis that is left alone, got %v", err)
			}
			l.lie(nil)
			testkit.Equal(t, "the state after that", w.wait(t, n+2)[n+1], "up")
		})
	}
}

// What Sentinels tell must have all its words, and a Redis of another protocol is refused with a reason.
func TestASentinelThatLiesCostsAConnection(t *testing.T) {
	t.Parallel()
	for name, lies := range map[string]map[string]string{
		"no master":                {"SENTINEL": "*0\r\n"},
		"a master without a port":  {"SENTINEL": "*1\r\n+127.0.0.1\r\n"},
		"a role without a name":    {"ROLE": "*0\r\n"},
		"a Sentinel without an IP": {"SENTINEL": ">3\r\n+message\r\n+sentinel\r\n+x\r\n"},
		"a switch to nothing":      {"SENTINEL": ">3\r\n+message\r\n$14\r\n+switch-master\r\n+main a b\r\n"},
		"a new Sentinel's nothing": {"SENTINEL": ">3\r\n+message\r\n$9\r\n+sentinel\r\n_\r\n"},
		"a subscription queued":    {"SUBSCRIBE": "+QUEUED\r\n"},
		"an end queued":            {"UNSUBSCRIBE": "-QUEUED\r\n"},
		"no HELLO":                 {"HELLO": "-ERR unknown command 'HELLO'\r\n"},
		"protocol 2":               {"HELLO": "*2\r\n+proto\r\n:2\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := startLiar(t)
			l.lie(lies)
			_, w := open(t, "redis+sentinel://"+l.Addr+"/main", nil)
			reason := w.wait(t, 1)[0]
			testkit.Equal(t, reason, strings.Contains(reason, "does not speak RESP3"), lies["HELLO"] != "")
			l.lie(nil)
			w.up(t)
		})
	}
}

// commands are what the library may have asked before an answer comes.
const commands = "*2\r\n$3\r\nGET\r\n$1\r\nx\r\n" + "*3\r\n$9\r\nSUBSCRIBE\r\n$1\r\nx\r\n$1\r\ny\r\n" + "*2\r\n$11\r\nUNSUBSCRIBE\r\n$1\r\nx\r\n" + "*1\r\n$4\r\nPING\r\n" + "*1\r\n$4\r\nROLE\r\n"

// answersOf are honest answers to them.
const answersOf = "$3\r\nabc\r\n" + ">3\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n:1\r\n" + ">3\r\n$9\r\nsubscribe\r\n$1\r\ny\r\n:2\r\n" +
	">3\r\n$11\r\nunsubscribe\r\n$1\r\nx\r\n:1\r\n" + "+PONG\r\n" + "*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n"

// seen returns the messages in a stream that comes in chunks of size bytes, and the error.
func seen(stream string, size int) (all []string, err error) {
	g := newGuard()
	if err := g.sent([]byte(commands)); err != nil {
		return nil, err
	}
	check := g.answers.end
	g.answers.end = func(m *message) error {
		all = append(all, fmt.Sprintf("%c%d %q", m.kind, m.n, m.words))
		return check(m)
	}
	for chunk := range slices.Chunk([]byte(stream), size) {
		if err = g.received(chunk); err != nil {
			break
		}
	}
	return all, err
}

func FuzzTheGuardReadsChunksAsItReadsTheWhole(f *testing.F) {
	for _, seed := range []string{answersOf, "$-1\r\n*-1\r\n", "%1\r\n+a\r\n_\r\n", "*1\r\n*1\r\n*1\r\n#t\r\n", "$3\r\nabcd\r\n", "-MOVED 1 a:1\r\n", "+\r\n"} {
		f.Add(seed, 3)
	}
	f.Fuzz(func(t *testing.T, stream string, size int) {
		whole, errWhole := seen(stream, len(stream)+1)
		parts, errParts := seen(stream, max(1, size))
		if !slices.Equal(whole, parts) || fmt.Sprint(errWhole) != fmt.Sprint(errParts) {
			t.Errorf("Expected %q, %v, got %q, %v", whole, errWhole, parts, errParts)
		}
	})
}

// Whatever the guard lets pass, the library must survive: a panic of it ends this process.
func FuzzTheLibrarySurvivesWhatTheGuardLetsPass(f *testing.F) {
	for _, seed := range []string{"+OK\r\n", answersOf, "%1\r\n+a\r\n_\r\n", "-MOVED 1 a:1\r\n", ">3\r\n+unsubscribe\r\n+x\r\n:0\r\n+OK\r\n", "*2\r\n*0\r\n~1\r\n#t\r\n", "!5\r\nERR x\r\n"} {
		for _, command := range []string{"GET", "SUBSCRIBE", "HELLO", "PING"} {
			f.Add(command, seed)
		}
	}
	l := startLiar(f)
	c, w := open(f, "redis://"+l.Addr, nil)
	w.wait(f, 1)
	f.Fuzz(func(_ *testing.T, command, lie string) {
		l.lie(map[string]string{command: strings.ReplaceAll(lie, endless, "") + hangUp})
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		defer cancel()
		_, _ = c.Do(ctx, "read", "GET", []string{c.Key("n")})
		_ = c.Subscribe(ctx, c.Key("news"), func(string) {})
	})
}
