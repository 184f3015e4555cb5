package producer

// flush is a caller of Flush with the batches it waits for.
type flush struct {
	left map[*batch]struct{}
	done chan struct{}
}

// flushes is those who wait; the actor's.
type flushes []*flush

// settle takes b off the lists of those who wait for it.
func (fs *flushes) settle(b *batch) {
	rest := (*fs)[:0]
	for _, f := range *fs {
		delete(f.left, b)
		if len(f.left) == 0 {
			close(f.done)
			continue
		}
		rest = append(rest, f)
	}
	clear((*fs)[len(rest):])
	*fs = rest
}

// inherit has those who wait for b wait for the batches that have its records,
// of those without a result.
func (fs *flushes) inherit(b *batch) {
	for _, f := range *fs {
		if _, waits := f.left[b]; !waits {
			continue
		}
		f.waitFor(b.placed)
	}
	fs.settle(b)
}

func (f *flush) waitFor(records []Receipt) {
	for _, r := range records {
		select {
		case <-r.batch.done:
			f.waitFor(r.batch.placed)
		default:
			f.left[r.batch] = struct{}{}
		}
	}
}
