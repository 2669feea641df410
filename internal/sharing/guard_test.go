package sharing

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

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

func TestTheGuardLetsHonestAnswersPass(t *testing.T) {
	long := strings.Repeat("x", maxBulk)
	nested := strings.Repeat("*1\r\n", maxNesting) + ":1\r\n"
	for name, first := range map[string]string{
		"a bulk": "$3\r\nabc\r\n", "an empty one": "$0\r\n\r\n", "an absent one": "$-1\r\n", "the longest": fmt.Sprintf("$%d\r\n%s\r\n", len(long), long),
		"a line": "+OK\r\n", "an empty line": "+\r\n", "an error": "-ERR no\r\n", "a number": ":-12\r\n", "a float": ",1.5\r\n", "a large number": "(123456789012345678901\r\n",
		"a null": "_\r\n", "a boolean": "#t\r\n", "verbatim": "=7\r\ntxt:abc\r\n", "an array": "*3\r\n$1\r\na\r\n$-1\r\n*2\r\n:1\r\n*0\r\n", "an empty array": "*0\r\n", "an absent array": "*-1\r\n",
		"a map": "%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n+c\r\n", "a set": "~2\r\n+a\r\n+b\r\n", "nesting": nested, "news before it": ">3\r\n+message\r\n+news\r\n+relay\r\n+OK\r\n",
		"a redirect": "-MOVED 3999 127.0.0.1:6381\r\n", "a bulk with a line in it": "$5\r\n\r\n+\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			_, rest, _ := strings.Cut(answersOf, "abc\r\n")
			if got, err := seen(first+rest, 1000); err != nil || len(got) < 6 {
				t.Errorf("Expected all answers, got %q, %v", got, err)
			}
		})
	}
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
