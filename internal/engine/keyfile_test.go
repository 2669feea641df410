package engine

import (
	"context"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/logtest"
)

func TestAKeyThatCannotBeReadIsOneLineAndTheOldKeyStays(t *testing.T) {
	lines := logtest.Capture(t)
	file := filepath.Join(t.TempDir(), "key")
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		e := &Engine{settings: config.Settings{KeyFile: file}}
		if got := e.awaitKey(ctx, "OLD"); got != "OLD" {
			t.Errorf("Expected the old key, got %q", got)
		}
	})
	logtest.WantParts(t, lines.Only(t, "Cannot replace the key"), "[WARNING]", file, "The key before stays in use", "every 5 seconds")
}
