package sharing

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
)

// When Redis stays away, lists would grow old everywhere. So after StoreConfig.Alone one relay continues
// without it: the one that had the lease last, as it noted in its folder. So does a relay that has
// never seen Redis work: it cannot know of others. It keeps its own clocks,
// which are at least as late as those in Redis, so the server sees one polite client. Only in a
// partition, where Redis works for others, may it see two.

// noteFile is the name of the file in the folder of a relay.
const noteFile = "redis-lease.json"

// maxNote is the most bytes of that file.
const maxNote = 64 << 10

// note is what a relay remembers over a restart.
type note struct {
	HeldLast bool      `json:"held_last"` // no other relay was seen with the lease since
	Seen     bool      `json:"seen"`      // Redis has worked with this asker
	Asker    string    `json:"asker"`
	Away     time.Time `json:"away,omitzero"`  // since when Redis cannot be used; zero: it can
	Until    time.Time `json:"until,omitzero"` // when that was seen last, see remember
}

// during returns the note for a process that starts at now. If the last one has ended long ago, or the clock
// was set, nobody has seen whether Redis worked meanwhile.
func (n note) during(now time.Time, alone time.Duration) note {
	if off := now.Sub(n.Until); off < 0 || off > alone/4 {
		n.Away = time.Time{}
	}
	return n
}

// readNote reads the note of a folder. Without one, this asker has never used Redis. A note that
// cannot be read may have said that another relay had the lease last: then this one waits for
// Redis.
func readNote(folder, asker string) (n note) {
	raw, err := files.Read(filepath.Join(folder, noteFile), maxNote)
	if errors.Is(err, fs.ErrNotExist) && !files.Dangling(filepath.Join(folder, noteFile)) {
		return note{}
	}
	if err != nil || json.Unmarshal(raw, &n) != nil {
		return note{Seen: true, Asker: asker}
	}
	return n
}

// write replaces the note of a folder, durably.
func (n note) write(folder string) error {
	return files.Replace(filepath.Join(folder, noteFile), func(w *os.File) error { return json.NewEncoder(w).Encode(n) })
}

// remember changes the note, and returns what writes it, or nil. What could not be written is
// written at the next beat, and that Redis is still away now and then. The caller holds mu.
func (s *Store) remember(next note) (write func()) {
	next.Asker = s.asker
	last := s.note
	same := next.HeldLast == last.HeldLast && next.Seen == last.Seen && next.Asker == last.Asker && next.Away.Equal(last.Away) &&
		next.Until.Sub(last.Until) < s.cfg.Alone/8
	if same && !s.unwritten.Load() {
		return nil
	}
	s.note = next
	return func() { s.unwritten.Store(next.write(s.cfg.Folder) != nil) }
}

// goAlone begins to fetch without Redis, if it has been away for long and this process had the
// lease last. The caller holds mu.
func (s *Store) goAlone(now time.Time) (events []Event) {
	away := s.downAt
	if before := s.note.Away; s.note.Asker == s.asker && !before.IsZero() && before.Before(away) {
		away = before // this process was restarted meanwhile
	}
	known := s.note.Asker == s.asker && s.note.Seen
	if s.alone || !s.want || known && !s.note.HeldLast || now.Sub(away) < s.cfg.Alone {
		return nil
	}
	s.alone, s.since = true, now
	return []Event{{Kind: Alone, Since: away}}
}
