package realkafka

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// fileLock is an exclusive lock between processes, held by an open file: it
// ends with the process at the latest.
type fileLock struct{ file *os.File }

// lockFile waits for the lock of path until ctx ends. waiting, if not nil, is
// called once when somebody else has it.
func lockFile(ctx context.Context, path string, waiting func()) (*fileLock, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		got, err := tryLock(f)
		if err != nil {
			_ = f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if got {
			return &fileLock{f}, nil
		}
		if waiting != nil {
			waiting()
			waiting = nil
		}
		select {
		case <-ctx.Done():
			_ = f.Close()
			return nil, fmt.Errorf("waiting for the lock %s: %w", path, context.Cause(ctx))
		case <-tick.C:
		}
	}
}

func (l *fileLock) release() { _ = l.file.Close() }

// write replaces the text of the file.
func (l *fileLock) write(text string) error {
	if err := l.file.Truncate(0); err != nil {
		return err
	}
	_, err := l.file.WriteAt([]byte(text), 0)
	return err
}
