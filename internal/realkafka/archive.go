package realkafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

const (
	archiveJava   = 13 // the first that writes one at exit
	archiveWithin = 3 * time.Minute
)

// Warm makes the next starts of a release faster: it starts a broker once and
// keeps an archive of the classes that it loaded, which halves the time of a
// start. It costs one start and some 10 s, and is worth it where many clusters
// start, as in the tests. It does nothing where that was done, and for releases
// and Javas that are started without.
func Warm(ctx context.Context, release string, log io.Writer) error {
	v, err := parseVersion(release)
	if err != nil {
		return err
	}
	log = orDiscard(log)
	i, err := fetch(ctx, v, log)
	if err != nil {
		return err
	}
	if v.zooKeeper() || i.java.major < archiveJava || exists(i.archive()) {
		return nil
	}
	lock, err := lockFile(ctx, i.archive()+".lock", nil)
	if err != nil {
		return err
	}
	defer lock.release()
	if exists(i.archive()) {
		return nil
	}
	fmt.Fprintf(log, "making an archive of the classes of Apache Kafka %s\n", v.text)
	return i.writeArchive(ctx, log)
}

func (i install) writeArchive(ctx context.Context, log io.Writer) error {
	dir, err := os.MkdirTemp(i.dir, "archive-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	o, _, err := Options{Version: i.version.text}.settle()
	if err != nil {
		return err
	}
	i.record = true
	c, err := attempt(ctx, home{dir: filepath.Join(dir, "cluster"), name: "archive", output: log}, i, o)
	if err != nil {
		return err
	}
	defer c.destroy()
	n := c.state.Nodes[0]
	ctx, cancel := context.WithTimeout(ctx, archiveWithin)
	defer cancel()
	if err := errors.Join(n.signal(signalEnd), n.ended(ctx)); err != nil {
		return fmt.Errorf("the archive of the classes: %w", err)
	}
	return os.Rename(i.archive()+".new", i.archive())
}
