package realkafka

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// session is a cluster that belongs to this process and ends with it.
type session struct {
	cluster *Cluster
	dir     string // of the session: the owner's lock and the cluster's folder
	owner   *fileLock
	turn    *fileLock // nil unless held for three brokers
}

// tempDir holds everything that this user's clusters write.
func tempDir() string {
	return filepath.Join(os.TempDir(), "ottla-kafka-"+strconv.Itoa(os.Getuid()))
}

// begin starts a cluster in a folder of its own.
func begin(ctx context.Context, o Options) (*session, error) {
	s, err := newSession(ctx)
	if err != nil {
		return nil, err
	}
	warmUp(ctx, o.Version)
	if o.Brokers == 3 {
		if s.turn, err = takeTurn(ctx); err != nil {
			s.end(false)
			return nil, err
		}
	}
	s.cluster, err = launch(ctx, home{dir: filepath.Join(s.dir, "cluster"), name: filepath.Base(s.dir), output: os.Stderr}, o)
	if err != nil {
		if kept := s.end(true); kept != "" {
			err = fmt.Errorf("%w\n(the logs are kept in %s)", err, kept)
		}
		return nil, err
	}
	return s, nil
}

// warmUp makes the archive of classes, without which everything works too. An
// error of it that matters comes back when the cluster is started.
func warmUp(ctx context.Context, release string) {
	if err := Warm(ctx, release, os.Stderr); err != nil {
		fmt.Fprintf(os.Stderr, "starting without an archive of classes: %v\n", firstLine(err.Error()))
	}
}

// newSession makes the folder and the lock that says that it is in use.
func newSession(ctx context.Context) (*session, error) {
	making, err := lockFile(ctx, filepath.Join(tempDir(), "sweep.lock"), nil)
	if err != nil {
		return nil, err
	}
	defer making.release()
	sweep()
	dir, err := os.MkdirTemp(tempDir(), "test-")
	if err != nil {
		return nil, err
	}
	owner, err := lockFile(ctx, filepath.Join(dir, "owner.lock"), nil)
	return &session{dir: dir, owner: owner}, err
}

// end kills the brokers and removes the folder, all but the logs and
// properties if keep. It returns the folder that it kept.
func (s *session) end(keep bool) (kept string) {
	if s.cluster != nil {
		s.cluster.destroy()
	}
	if s.turn != nil {
		_ = s.turn.write("")
		s.turn.release()
	}
	defer s.owner.release()
	if keep {
		logs, _ := filepath.Glob(filepath.Join(s.dir, "cluster", "*", "*.log"))
		configs, _ := filepath.Glob(filepath.Join(s.dir, "cluster", "*", "server.properties"))
		kept = filepath.Join(tempDir(), "failed-"+filepath.Base(s.dir))
		for _, path := range append(logs, configs...) {
			to := filepath.Join(kept, filepath.Base(filepath.Dir(path))+"-"+filepath.Base(path))
			_ = os.MkdirAll(kept, 0o755)
			_ = os.Rename(path, to)
		}
		if len(logs) == 0 {
			kept = ""
		}
	}
	_ = os.RemoveAll(s.dir)
	return kept
}

// sweep removes the folders of test processes that died without cleaning up:
// nobody holds their lock.
func sweep() {
	dirs, _ := filepath.Glob(filepath.Join(tempDir(), "test-*"))
	for _, dir := range dirs {
		f, err := os.OpenFile(filepath.Join(dir, "owner.lock"), os.O_RDWR, 0)
		if err != nil {
			continue
		}
		if free, _ := tryLock(f); free {
			_ = os.RemoveAll(dir)
		}
		_ = f.Close()
	}
}

// takeTurn waits for the right to run three brokers, which one process of a
// machine has at a time: six JVMs starve a small machine. A process that has it
// already gets it again; it gives it back with its first cluster of three.
func takeTurn(ctx context.Context) (*fileLock, error) {
	path := filepath.Join(tempDir(), "three-brokers.lock")
	self := strconv.Itoa(os.Getpid())
	if holder, _ := os.ReadFile(path); string(holder) == self {
		return nil, nil
	}
	lock, err := lockFile(ctx, path, func() {
		fmt.Fprintln(os.Stderr, "waiting for another process that runs three brokers")
	})
	if err != nil {
		return nil, err
	}
	return lock, lock.write(self)
}
