package block

import (
	"github.com/coredns-safebrowsing/safebrowsing/internal/pause"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
)

// pauses are the folders in which the command line writes that names pass.
var pauses = pause.NewRegistry(reportPause)

// watchPauses looks for pauses of the block. The result ends that.
func (b *Block) watchPauses() (end func()) {
	folder := b.Config.PauseFolder()
	if folder == "" {
		return func() {}
	}
	f := pauses.Open(folder)
	b.pauses.Store(f)
	return func() { pauses.Close(f) }
}

// reportPause writes one line when a pause begins, and one when it ends.
func reportPause(e pause.Event) {
	switch e := e.(type) {
	case pause.Began:
		log.Warningf("Blocking is PAUSED until %s for %s: every name passes. To end the pause: safebrowsing pause off", say.Time(e.Until), pausedBlocks(e.Pause))
	case pause.Ended:
		log.Infof("Blocking is in force again for %s: the pause has ended", pausedBlocks(e.Pause))
	case pause.Dropped:
		log.Infof("Blocking is in force for %s: the pause until %s was for the process before this one. To keep a pause over a restart: safebrowsing pause -keep", pausedBlocks(e.Pause), say.Time(e.Until))
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
