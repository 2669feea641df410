package safebrowsing

import (
	"strings"
	"time"

	"github.com/coredns/coredns/plugin"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/pause"
)

// pauses are the folders in which the command line writes that names pass.
var pauses = pause.NewRegistry(reportPause)

// watchPauses has the server block look for pauses. The result ends that.
func (s *SafeBrowsing) watchPauses() (end func()) {
	folder := s.cfg.PauseFolder()
	if folder == "" {
		return func() {}
	}
	f := pauses.Open(folder)
	s.pauses.Store(f)
	return func() { pauses.Close(f) }
}

// pausedUntil returns when the pause of this server block ends, and whether there is one.
func (s *SafeBrowsing) pausedUntil() (time.Time, bool) {
	return s.pauses.Load().Until(s.cfg.Zones)
}

// reportPause writes one line when a pause begins, and one when it ends.
func reportPause(e pause.Event) {
	switch e := e.(type) {
	case pause.Began:
		log.Warningf("Blocking is PAUSED until %s for %s: every name passes. To end the pause: safebrowsing pause off", e.Until.Local().Format(time.RFC3339), pausedBlocks(e.Pause))
	case pause.Ended:
		log.Infof("Blocking is in force again for %s: the pause has ended", pausedBlocks(e.Pause))
	case pause.Dropped:
		log.Infof("Blocking is in force for %s: the pause until %s was for the process before this one. To keep a pause over a restart: safebrowsing pause -keep", pausedBlocks(e.Pause), e.Until.Local().Format(time.RFC3339))
	case pause.Failed:
		log.Errorf("Cannot read %s: %v. Blocking is not paused; write the file with safebrowsing pause", e.File, e.Err)
	}
}

func pausedBlocks(p pause.Pause) string {
	if p.Zone == pause.All {
		return "all server blocks"
	}
	return "the zone " + p.Zone
}

// pausedMetric exports whether server blocks are paused. It stores nothing.
type pausedMetric struct{ desc *prometheus.Desc }

var _ = registered(pausedMetric{prometheus.NewDesc(prometheus.BuildFQName(plugin.Namespace, config.Plugin, "paused"),
	"Gauge that is 1 while blocking is paused; else 0.", []string{"zones"}, nil)})

// Describe implements prometheus.Collector.
func (m pausedMetric) Describe(descs chan<- *prometheus.Desc) { descs <- m.desc }

// Collect implements prometheus.Collector. Server blocks with the same zones have one
// pause, and one series.
func (m pausedMetric) Collect(metrics chan<- prometheus.Metric) {
	paused := make(map[string]float64)
	for _, s := range serving.blocks() {
		zones := strings.Join(s.cfg.Zones, " ")
		if _, now := s.pausedUntil(); now {
			paused[zones] = 1
		} else {
			paused[zones] += 0
		}
	}
	for zones, value := range paused {
		metrics <- prometheus.MustNewConstMetric(m.desc, prometheus.GaugeValue, value, zones)
	}
}
