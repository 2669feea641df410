//go:build linux && amd64

package crash

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/sharing"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// The note of a relay about the lease in Redis.

func (p place) lease() string { return filepath.Join(p.root, "lease") }

// Without Redis only the relay fetches that had the lease last.
func followed(t *testing.T, p place) { putNote(t, p, "false") }
func led(t *testing.T, p place)      { putNote(t, p, "true") }

func putNote(t *testing.T, p place, heldLast string) {
	text := `{"held_last":` + heldLast + `,"seen":true,"asker":"asker"}` + "\n"
	must(t, os.WriteFile(filepath.Join(p.lease(), "redis-lease.json"), []byte(text), 0o600))
}

// withoutRedis opens the store of a relay whose Redis is away.
func withoutRedis(p place, alone time.Duration, report func(sharing.Event)) (*sharing.Store, func(), error) {
	target, err := sharing.Parse("redis://127.0.0.1:1") // nothing listens there
	if err != nil {
		return nil, nil, err
	}
	client, err := sharing.Open(sharing.Config{Target: target})
	if err != nil {
		return nil, nil, err
	}
	s := sharing.OpenStore(sharing.StoreConfig{
		Client: client, Origin: updater.Origin{Name: origin.Name, Asker: "asker"}, Folder: p.lease(),
		Report: report, Beat: 5 * time.Millisecond, Alone: alone,
	})
	return s, func() { s.Close(); client.Close() }, nil
}

// loseRedis makes a relay note that Redis is away.
func loseRedis(p place) error {
	lost := make(chan sharing.Event, 100)
	_, end, err := withoutRedis(p, time.Hour, func(e sharing.Event) { lost <- e })
	if err != nil {
		return err
	}
	defer end()
	<-lost // the note is written before
	return nil
}

// checkLease says whether the relay fetches without Redis after its start.
func checkLease(fetches bool) func(*testing.T, place, []note, bool) {
	return func(t *testing.T, p place, _ []note, _ bool) {
		t.Helper()
		alone := make(chan struct{}, 100)
		s, end, err := withoutRedis(p, time.Millisecond, func(e sharing.Event) {
			if e.Kind == sharing.Alone {
				alone <- struct{}{}
			}
		})
		must(t, err)
		defer end()
		s.TryLock()
		patience := 100 * time.Millisecond // some beats
		if fetches {
			patience = 10 * time.Second
		}
		select {
		case <-alone:
			if !fetches {
				t.Error("another relay had the lease last, and this one fetches without Redis")
			}
		case <-time.After(patience):
			if fetches {
				t.Error("this relay had the lease last, and does not fetch without Redis")
			}
		}
		wantTidy(t, p.lease())
	}
}
