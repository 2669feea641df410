package block

import (
	"strings"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/engine"
	"github.com/coredns-safebrowsing/safebrowsing/internal/status"
)

// zones returns the zones, joined by a space.
func (b *Block) zones() string { return strings.Join(b.Config.Zones, " ") }

// reportOf returns what blocks protect by. Blocks with equal settings have one service.
func reportOf(blocks []*Block, now time.Time) status.Report {
	r := status.Report{At: now, Services: []status.Service{}, Blocks: []status.Block{}}
	services := make(map[engine.Settings]int)
	for _, b := range blocks {
		standing := b.standing()
		if s := b.service.Load(); s != nil {
			i, known := services[b.Settings]
			if !known {
				i = len(r.Services)
				services[b.Settings] = i
				service := s.Standing(now)
				service.Notice = b.Reply().Notice()
				r.Services = append(r.Services, service)
			}
			standing.Service = i
		}
		r.Blocks = append(r.Blocks, standing)
	}
	return r
}

// standing returns what the block protects by, without its service.
func (b *Block) standing() status.Block {
	s := status.Block{Zones: b.zones(), Service: -1, Monitor: b.Config.Monitor, Led: b.Config.Keep == config.KeepNothing, Own: []status.OwnList{}}
	s.Paused, _ = b.PausedUntil()
	for _, own := range b.OwnLists() {
		o := status.OwnList{Name: own.Named, Allow: own.Allow, Entries: own.InForce(), Updated: own.Modified, Nothing: own.Complaint()}
		if own.Err != nil {
			o.Trouble = own.Err.Error()
		}
		s.Own = append(s.Own, o)
	}
	return s
}
