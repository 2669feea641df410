package story

import (
	"fmt"
	"io"
	"net"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// The other secrets of a relay: what its clients send, and what Redis asks for.
const (
	markedClient   = "client-MARKED-0123456789-abcdefghijklmn"
	markedPassword = "redis-MARKED-9876543210-zyxwvutsrqponm"
)

// The key of a relay, the key of its clients and the password of Redis are in nothing that a
// relay, Redis and a CoreDNS leave, and cross the network only where they belong.
func TestTheSecretsOfARelayStayWhereTheyBelong(t *testing.T) {
	testkit.Long(t)
	if runtime.GOOS != "linux" {
		t.Skip("reads /proc")
	}
	t.Parallel()
	programs, kept, dir, secrets, redisFolder := programs(t), newTraces(), t.TempDir(), t.TempDir(), t.TempDir()
	for file, secret := range map[string]string{"key": markedKey, "client": markedClient, "password": markedPassword} {
		testkit.Write(t, secrets, file, secret+"\n")
	}
	fetch := func(corefile string) { // so that the program need not wait for its first contact
		status, out := testkit.Run(t, programs["safebrowsing"], "update", "-now", "-corefile", corefile)
		kept.add("output of safebrowsing update", out)
		testkit.Equal(t, "status of update, which says "+out, status, 0)
	}

	redis := testkit.StartRedis(t, "--requirepass", markedPassword, "--rdbcompression", "no", "--dir", redisFolder)
	redis.Password = markedPassword
	toRedis, google := newWire(t, redis.Addr), keyInHeader(t, kept)
	relayDB, relayAddress, admin := filepath.Join(dir, "relay"), testkit.FreeAddress(t, "127.0.0.1"), testkit.FreeAddr(t)
	key, clientKey := filepath.Join(secrets, "key"), filepath.Join(secrets, "client")
	corefile := testkit.Write(t, dir, "Corefile.relay", // says what the flags of the relay say
		fmt.Sprintf(". {\n\tsafebrowsing {\n\t\tendpoint %s\n\t\tapi_key_file %s\n\t\tlists se-4b\n\t\tdb %s\n\t}\n}\n", google, key, relayDB))
	fetch(corefile)
	toRelay := newWire(t, relayAddress)
	relay := testkit.Start(t, programs["safebrowsing-relay"], "-endpoint", google, "-api-key-file", key, "-lists", "se-4b", "-db", relayDB, "-listen", relayAddress, "-admin", admin,
		"-client-key-file", clientKey, "-redis", "redis://"+toRedis.address, "-redis-password-file", filepath.Join(secrets, "password"))
	relay.Line("Corefile of each server", time.Minute)
	relay.Line("over Redis at", 5*time.Minute) // it tries again each half a minute, with little patience

	c, metrics, status := newCoreDNS(t, dir), testkit.FreeAddr(t), testkit.FreeAddr(t)
	c.configure("debug\n\tlog\n\terrors\n\tprometheus "+metrics+"\n\t"+answering,
		"endpoint http://"+toRelay.address, "api_key_file "+clientKey, "lists se-4b", "db "+filepath.Join(dir, "db"),
		"status "+status+" names", "confirm_timeout 10s", "log json", "explain")
	fetch(c.file)
	c.start()
	c.wantReady()
	c.want("malware.example.net.", dns.RcodeNameError)
	c.want("later.example.net.", dns.RcodeSuccess) // Google refuses, with its key in its words
	relay.Line("status 403", time.Minute)

	kept.add("explain", explain(t, c.dns, "malware.example.net"))
	for what, url := range map[string]string{"status page": status + "/", "metrics of the client": metrics + "/metrics",
		"metrics of the relay": admin + "/metrics", "health of the relay": admin + "/healthz"} {
		kept.addURL(t, what, "http://"+url)
	}
	for _, args := range [][]string{{"status", "-corefile", c.file}, {"status", "-json", "-corefile", c.file}, {"status", "-corefile", corefile},
		{"doctor", "-corefile", c.file}, {"doctor", "-corefile", corefile}, {"doctor", "-endpoint", "http://" + relayAddress}, {"lists", "-corefile", c.file}} {
		_, out := testkit.Run(t, programs["safebrowsing"], args...)
		kept.add("output of safebrowsing "+strings.Join(args[:2], " "), out)
	}
	testkit.Equal(t, "the answer of Redis", redis.Do("SAVE"), "+OK")
	dump := testkit.Read(t, filepath.Join(redisFolder, "dump.rdb"))
	testkit.WantParts(t, dump, "safebrowsing:1:")
	kept.add("dump of Redis", dump)
	kept.addProcess(t, "relay", relay)
	kept.addProcess(t, "client", c.process)
	kept.addFiles(t, dir)
	toRedis.addWithout(t, kept, regexp.MustCompile(`(?i)\$4\r\nAUTH\r\n(\$\d+\r\n[^\r\n]*\r\n){1,2}`), markedPassword)
	toRelay.addWithout(t, kept, regexp.MustCompile(`(?i)X-Goog-Api-Key: [^\r\n]*\r\n`), markedClient)
	for _, secret := range []string{markedKey, markedClient, markedPassword} {
		kept.wantNo(t, secret)
	}
}

func explain(t *testing.T, port, name string) string {
	t.Helper()
	m := new(dns.Msg).SetQuestion(name+".why.safebrowsing.", dns.TypeTXT)
	m.Question[0].Qclass = dns.ClassCHAOS
	answer, err := dns.Exchange(m, "127.0.0.1:"+port)
	testkit.Must(t, err)
	return answer.String()
}

// wire passes connections on to a server and keeps what goes there and back. It is safe for concurrent use.
type wire struct {
	address string

	mu      sync.Mutex
	streams []*testkit.Output // one for each direction of each connection
}

func newWire(t *testing.T, server string) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	t.Cleanup(func() { l.Close() })
	w := &wire{address: l.Addr().String()}
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", server)
			if err != nil {
				from.Close()
				continue
			}
			go w.pass(from, to)
			go w.pass(to, from)
		}
	}()
	return w
}

func (w *wire) pass(from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	stream := new(testkit.Output)
	w.mu.Lock()
	w.streams = append(w.streams, stream)
	w.mu.Unlock()
	_, _ = io.Copy(io.MultiWriter(stream, to), from)
}

// addWithout adds all that was kept but what place matches. The secret must have been there.
func (w *wire) addWithout(t *testing.T, kept *traces, place *regexp.Regexp, secret string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	found := 0
	for _, stream := range w.streams {
		rest := place.ReplaceAllStringFunc(stream.String(), func(match string) string {
			found += strings.Count(match, secret)
			return ""
		})
		kept.add("connections to "+w.address, rest)
	}
	testkit.Equal(t, secret+" goes to "+w.address, found > 0, true)
}
