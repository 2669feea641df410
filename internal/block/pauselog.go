package block

import (
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
)

// pauses are the folders in which the command line writes that names pass.
var pauses = newPauses(reportPause)

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
func reportPause(e pauseEvent) {
	switch e.what {
	case pauseBegan:
		log.Warningf("Blocking is PAUSED until %s for %s: every name passes. To end the pause: safebrowsing pause off", say.Time(e.Until), pausedBlocks(e.Pause))
	case pauseEnded:
		except := ""
		for _, other := range e.others {
			if e.Zone == AllBlocks {
				except += ", but not for " + pausedBlocks(other)
			}
		}
		log.Infof("Blocking is in force again for %s%s: the pause has ended", pausedBlocks(e.Pause), except)
	case pauseDropped:
		log.Infof("Blocking is in force for %s: the pause until %s was for the process before this one. To keep a pause over a restart: safebrowsing pause -keep", pausedBlocks(e.Pause), say.Time(e.Until))
	case pauseFailed:
		log.Errorf("Cannot read %s: %v. Blocking is not paused; write the file with safebrowsing pause", e.file, e.err)
	}
}

func pausedBlocks(p Pause) string {
	if p.Zone == AllBlocks {
		return "all server blocks"
	}
	return "the zone " + p.Zone
}
