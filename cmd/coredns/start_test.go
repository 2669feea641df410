package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// asServer runs this test as the server, in a process of its own.
const asServer = "COREDNS_OF_THIS_TEST"

func TestMain(m *testing.M) {
	if os.Getenv(asServer) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestTheHeadroomDependsOnTheMemory(t *testing.T) {
	for memory, want := range map[int64]int64{
		0: 0, 128 * mib: 0, 512*mib - 1: 0, // not known, a router, a small machine
		512 * mib: 16 * mib, 1024 * mib: 32 * mib, 512 << 30: 64 * mib, // the least, a cheap virtual machine, a rack
	} {
		testkit.Equal(t, memory, headroomOf(memory), want)
	}
}

// logOfStart starts this server on a port of 127.0.0.1 with more environment, and returns the log of its start.
func logOfStart(t *testing.T, port uint16, env ...string) string {
	t.Helper()
	conf := testkit.Write(t, t.TempDir(), "Corefile", fmt.Sprintf(".:%d {\n bind 127.0.0.1\n debug\n whoami\n}\n", port))
	server := testkit.StartWith(t, append([]string{asServer + "=1", "GOGC=", "GOMEMLIMIT="}, env...), os.Args[0], "-conf", conf)
	server.Line("CoreDNS-", 30*time.Second) // the last line of a start
	defer server.Kill()
	return server.Output()
}

// With coredns -log-format json each line of the log is an object with a text. A line of log json is none of these.
func TestALineOfLogJSONIsOneObjectInAnyFormatOfTheLog(t *testing.T) {
	dir, at := t.TempDir(), testkit.FreeAddress(t, "127.0.0.1")
	_, port, _ := net.SplitHostPort(at)
	own := testkit.Write(t, dir, "own.txt", "blocked.example\n")
	conf := testkit.Write(t, dir, "Corefile", fmt.Sprintf(".:%s {\n bind 127.0.0.1\n safebrowsing {\n block %s\n log json\n }\n whoami\n}\n", port, own))
	server := testkit.StartWith(t, []string{asServer + "=1", "SAFEBROWSING_API_KEY=", "STATE_DIRECTORY=" + dir}, os.Args[0], "-conf", conf, "-log-format", "json")
	server.Line("CoreDNS-", 30*time.Second)
	_, err := dns.Exchange(new(dns.Msg).SetQuestion("blocked.example.", dns.TypeA), at)
	testkit.Must(t, err)
	line := server.Line("blocked.example.", 30*time.Second)
	var object struct{ Event, Name string }
	testkit.Must(t, json.Unmarshal([]byte(line), &object))
	testkit.Equal(t, line, object, struct{ Event, Name string }{"blocked", "blocked.example."})
}

func TestThePaceIsInTheLogAtDebug(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells how much memory there is")
	}
	const line = "[DEBUG] There are %s: the garbage collector runs when the heap has %s. Set GOGC to change that.\n"
	for env, want := range map[string]string{
		"GOMEMLIMIT=40MiB": fmt.Sprintf(line, "40 MiB of memory", "doubled"), // a router
		"GOMEMLIMIT=1GiB":  fmt.Sprintf(line, "1024 MiB of memory", "grown by 32 MiB, or has doubled if that is more"),
		"GOGC=100":         "",
	} {
		if env == "GOMEMLIMIT=1GiB" && lookup.UsableMemory() <= 2048*mib {
			continue
		}
		t.Run(env, func(t *testing.T) {
			t.Parallel()
			log := logOfStart(t, 0, env)
			testkit.Equal(t, "lines about memory", strings.Count(log, "of memory"), map[bool]int{true: 1}[want != ""])
			testkit.WantParts(t, log, want)
		})
	}
}

// resolver is a Corefile with the plugins that a resolver for a network uses.
const resolver = `.:0 {
	bind 127.0.0.1
	metadata
	errors
	log . {
		class error
	}
	reload 1h 1m
	health 127.0.0.1:0
	ready 127.0.0.1:0
	prometheus 127.0.0.1:0
	view all {
		expr true
	}
	rewrite name old.example new.example
	acl {
		block net 192.0.2.0/24
	}
	safebrowsing {
		block HERE/own.txt
	}
	cache
	template IN A template.example {
		answer "{{ .Name }} 60 IN A 192.0.2.2"
	}
	hosts {
		192.0.2.1 new.example
		fallthrough
	}
	file HERE/zone zone.example
	forward . 127.0.0.1:1
}
https://.:0 tls://.:0 quic://.:0 {
	bind 127.0.0.1
	tls HERE/cert.pem HERE/key.pem
	https {
		max_connections 10
	}
	quic {
		max_streams 10
	}
	safebrowsing {
		block HERE/own.txt
	}
}
`

func TestACorefileIsCheckedWithoutAStart(t *testing.T) {
	for _, tc := range []struct {
		name, corefile string
		status         int
		says           string
	}{
		{"right", ".:0 {\nsafebrowsing {\nblock ../../testdata/blocklist.txt\n}\nwhoami\n}\n", 0, "Corefile can be used"},
		{"a resolver", resolver, 0, "Corefile can be used"},
		{"a port that is in use", ".:1 {\nbind 192.0.2.1\nwhoami\n}\n", 0, "Corefile can be used"},
		{"an unknown directive", ".:0 {\nerors\n}\n", 1, "Corefile:2 - Error during parsing: Unknown directive 'erors'"},
		{"a wrong property", ".:0 {\nsafebrowsing {\nblok x\n}\nwhoami\n}\n", 1, `unknown property "blok": did you mean block?`},
		{"a plugin of another build", ".:0 {\nautopath x\n}\n", 1, "Unknown directive 'autopath': this program was built without autopath: go build -tags cluster"},
		{"empty", "", 1, "there is no Corefile"},
	} {
		if tags := buildTags(t); tc.name == "a plugin of another build" && slices.Contains(tags, "cluster") || tc.name == "a resolver" && slices.Contains(tags, "router") {
			continue
		}
		t.Run(tc.name, func(t *testing.T) {
			here := t.TempDir()
			testkit.Certificate(t, here) // cert.pem and key.pem
			testkit.Write(t, here, "zone", "@ 60 IN SOA ns.zone.example. a.zone.example. 1 60 60 60 60\n@ 60 IN NS ns.zone.example.\n")
			testkit.Write(t, here, "own.txt", "blocked.example\n")
			file := testkit.Write(t, here, "Corefile", strings.ReplaceAll(tc.corefile, "HERE", here))
			t.Setenv(asServer, "1")
			status, out := testkit.Run(t, os.Args[0], "-check", "-conf", file)
			testkit.Equal(t, "status", status, tc.status)
			testkit.WantParts(t, out, tc.says)
		})
	}
	t.Setenv(asServer, "1")
	status, out := testkit.Run(t, os.Args[0], "-check") // there is none in this folder
	testkit.Equal(t, out, status, 1)
	testkit.WantParts(t, out, "there is no Corefile")
}
