package engine

import (
	"net/netip"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
)

// ShareLog logs that a client has spent its share of a budget: the first one of each day. The
// zero ShareLog is ready to use. It is safe for concurrent use.
type ShareLog struct{ said say.Daily }

// Log logs that a client of the service was refused at now.
func (l *ShareLog) Log(s *Service, client netip.Addr, now time.Time) {
	if s.Shares == nil || !l.said.First("", now) {
		return
	}
	taken, _ := s.Shares.Taken(client, now)
	b, _ := s.Shares.For(client, now)
	log.Warningf("In part: client %s has spent its share of the day's budget and what others do not need (%d of %d): its suspected names pass until more is free, at midnight at the latest. If it forwards for others, write \"budget %d 100%%\". The log names the first such client of a day only",
		client, taken, b.Day, b.Day)
}
