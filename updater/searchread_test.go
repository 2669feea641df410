package updater

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A search looks at the time and the size of the file, and reads it only if they changed.
func TestAFileOfSearchesThatHasNotChangedIsNotReadAgain(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(t *testing.T, file string, raw []byte, modified time.Time)
		want   int // failures that are known afterwards
	}{
		{"the same time and size", func(t *testing.T, file string, raw []byte, modified time.Time) {
			must(t, os.WriteFile(file, raw, 0o600))
			must(t, os.Chtimes(file, modified, modified))
		}, 1},
		{"another time", func(t *testing.T, file string, raw []byte, modified time.Time) {
			must(t, os.WriteFile(file, raw, 0o600))
			must(t, os.Chtimes(file, modified, modified.Add(time.Second)))
		}, 7},
		{"another size", func(t *testing.T, file string, raw []byte, modified time.Time) {
			must(t, os.WriteFile(file, append(raw, '\n'), 0o600))
			must(t, os.Chtimes(file, modified, modified))
		}, 7},
		{"another file", func(t *testing.T, file string, raw []byte, modified time.Time) {
			must(t, os.WriteFile(file+".new", raw, 0o600))
			must(t, os.Chtimes(file+".new", modified, modified))
			must(t, os.Rename(file+".new", file))
		}, 7},
		{"it is damaged", func(t *testing.T, file string, raw []byte, modified time.Time) {
			must(t, os.WriteFile(file, append([]byte("{"), raw[:len(raw)-1]...), 0o600))
			must(t, os.Chtimes(file, modified, modified.Add(time.Second)))
		}, 1},
	} {
		inBubble(t, tt.name, func(t *testing.T) {
			dir := t.TempDir()
			writer := newProcess(t, dir, v5Rules, &script{errs: []error{errLimited}})
			if err := writer.search(t); err != errLimited {
				t.Fatal(err)
			}
			reader := newProcess(t, dir, v5Rules, good())
			reader.backsOff(t, "the reader", 15*time.Minute)
			file := filepath.Join(dir, "searches.json")
			info, err := os.Stat(file)
			must(t, err)
			state, _ := savedClocks(t, reader.schedule.store, "searches.json")
			state.Search.Failures = 7
			now := time.Now()
			raw, err := encodeSchedule(state, now, reader.schedule.store.moment(now))
			must(t, err)
			tt.change(t, file, raw, info.ModTime())
			if after, err := os.Stat(file); err != nil || (after.Size() != info.Size()) != (tt.name == "another size") {
				t.Fatalf("%d bytes after %d, %v", after.Size(), info.Size(), err)
			}
			for who, p := range map[string]*process{"the writer": writer, "the reader": reader} {
				p.schedule.lookAtSearches()
				p.schedule.Flush()
				if got := p.schedule.SearchHold().Failures; got != tt.want {
					t.Errorf("%s knows %d failures, want %d", who, got, tt.want)
				}
			}
		})
	}
}

// When a process takes over, the later of two waits holds: its own or that of the file.
func TestTheLaterWaitOfSearchesIsKept(t *testing.T) {
	for name, own := range map[string]time.Duration{"its own": time.Hour, "that of the file": time.Minute, "none of its own": 0} {
		inBubble(t, name, func(t *testing.T) {
			dir := t.TempDir()
			first, second := newProcess(t, dir, v5Rules, good()), newProcess(t, dir, v5Rules, &script{errs: []error{errLimited}})
			if err := second.search(t); err != errLimited {
				t.Fatal(err)
			}
			first.schedule.state.Search.Clock = Clock{NotBefore: time.Now().Add(own)}
			first.schedule.keepSearches()
			first.schedule.Flush()
			newProcess(t, dir, v5Rules, good()).backsOff(t, "one that starts now", max(own, 15*time.Minute))
		})
	}
}

// While two schedules of one asker live, in a reload, the later of their waits holds.
func TestTheLaterWaitHoldsInTheOverlapOfAReload(t *testing.T) {
	for _, waits := range [][2]time.Duration{{time.Hour, 2 * time.Hour}, {2 * time.Hour, time.Hour}, {2 * time.Hour, 0}, {0, 2 * time.Hour}} {
		inBubble(t, waits[0].String()+" and "+waits[1].String(), func(t *testing.T) {
			now := time.Now()
			first, err := NewSchedule(nil)
			must(t, err)
			second, err := NewSchedule(nil)
			must(t, err)
			second.Follow(first)
			first.state.Search.Clock = Clock{NotBefore: now.Add(waits[0])}
			second.state.Search.Clock = Clock{NotBefore: now.Add(waits[1])}
			if hold := second.SearchHold(); !hold.Until.Equal(now.Add(2 * time.Hour)) {
				t.Errorf("held until %s, want 2 hours", hold.Until.Sub(now))
			}
			if wait := second.searchWait(now); wait != 2*time.Hour {
				t.Errorf("%s to wait, want 2 hours", wait)
			}
		})
	}
}
