package redisstore

import (
	"encoding/json"
	"os"
	"path/filepath"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/regular"
)

// When Redis stays away, lists would grow old everywhere. So after Config.Alone one relay goes on
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
	Away     time.Time `json:"away,omitzero"` // since when Redis cannot be used; zero: it can
}

// readNote reads the note of a folder. Without one, another relay may have had the lease last.
func readNote(folder string) (n note) {
	raw, err := regular.Read(filepath.Join(folder, noteFile), maxNote)
	if err != nil || json.Unmarshal(raw, &n) != nil {
		return note{}
	}
	return n
}

// write replaces the note of a folder. A note that is lost has this relay wait for Redis.
func (n note) write(folder string) {
	raw, err := json.Marshal(n)
	if err != nil {
		return
	}
	path := filepath.Join(folder, noteFile)
	if os.WriteFile(path+".tmp", append(raw, '\n'), 0o600) == nil {
		_ = os.Rename(path+".tmp", path)
	}
}

// remember changes the note, and returns what writes it, or nil. The caller holds mu.
func (s *Store) remember(next note) (write func()) {
	next.Asker = s.asker
	if last := s.note; next.HeldLast == last.HeldLast && next.Seen == last.Seen && next.Asker == last.Asker && next.Away.Equal(last.Away) {
		return nil
	}
	s.note = next
	return func() { next.write(s.cfg.Folder) }
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
