package updater_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/storetest"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

func TestStoresOnOneFolder(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) storetest.Medium {
		dir := t.TempDir()
		write := func(name string, change func([]byte) []byte) {
			path := filepath.Join(dir, name)
			raw, err := os.ReadFile(path)
			if err == nil {
				err = os.WriteFile(path, change(raw), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		return storetest.Medium{
			Process: func(int) *updater.Store {
				store, err := updater.OpenStore(dir, storetest.Origin)
				if err != nil {
					t.Fatal(err)
				}
				return store
			},
			Lose: func() {
				for _, name := range append(storetest.Origin.Documents(), storetest.List+".list") {
					_ = os.Remove(filepath.Join(dir, name)) // not every test has all
				}
			},
			Damage:     func(document string) { write(document, func([]byte) []byte { return []byte("\xff garbage") }) },
			DamageList: func() { write(storetest.List+".list", func(raw []byte) []byte { raw[100] ^= 1; return raw }) },
		}
	})
}
