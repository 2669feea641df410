package story

import (
	"crypto/sha256"
	"flag"
	"log"
	"os"
	"sync"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

var programDir string

var real = flag.Bool("first.contact", false, "wait for the real random first contact, up to a minute; without it for a second")

// soon is one more file of the program coredns. All else in it is as it is installed.
const soon = `package main

import (
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/engine"
)

func init() {
	engine.ForTests{Registry: engine.Default}.SetFirstContact(func() time.Duration { return time.Second })
}
`

var built = sync.OnceValues(func() (map[string]string, error) {
	var more map[string]string
	if !*real {
		more = map[string]string{"cmd/coredns/soon.go": soon}
	}
	return testkit.BuildWith(programDir, more, "coredns", "safebrowsing", "safebrowsing-relay")
})

func TestMain(m *testing.M) {
	testkit.SideBySide(8)
	dir, err := os.MkdirTemp("", "safebrowsing-story")
	if err != nil {
		log.Fatal(err)
	}
	programDir = dir
	m.Run()
	os.RemoveAll(dir)
}

func programs(t *testing.T) map[string]string {
	t.Helper()
	paths, err := built()
	testkit.Must(t, err)
	return paths
}

// serviceWith returns a service that lists phishing and confirms the first of it.
func serviceWith(t *testing.T, expressions ...string) *protocoltest.Server {
	t.Helper()
	google := protocoltest.New(t)
	var entries [][]byte
	for _, e := range expressions {
		hash := sha256.Sum256([]byte(e))
		entries = append(entries, hash[:4])
	}
	google.Publish("se-4b", entries)
	google.Publish("mw-4b", nil)
	google.Publish("uws-4b", nil)
	google.AddThreat(expressions[0], sbv5.ThreatType_SOCIAL_ENGINEERING)
	return google
}
