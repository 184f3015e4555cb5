package realkafka

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// compiler is the class of Eclipse's compiler: a Java without one of its own is
// enough.
const compiler = "org.eclipse.jdt.internal.compiler.batch.Main"

// JavaClasses are the Java programs of a project of this tree, compiled.
type JavaClasses struct {
	Dir string // their folder, also for Options.ClassPath

	java      string
	classPath string
}

// Compile compiles the Java sources of a Maven project of this tree. Its class
// path is that of Apache Kafka DefaultVersion and the jars that its pom itself
// names, among which the compiler has to be. The outcome is cached until a
// source or the pom changes. It blocks until that is done or ctx ends; progress
// goes to log, which may be nil.
func Compile(ctx context.Context, project string, log io.Writer) (*JavaClasses, error) {
	v, err := parseVersion(DefaultVersion)
	if err != nil {
		return nil, err
	}
	i, err := fetch(ctx, v, orDiscard(log))
	if err != nil {
		return nil, err
	}
	if project, err = filepath.Abs(project); err != nil {
		return nil, err
	}
	root := filepath.Dir(i.dir)
	sources, stamp, err := readProject(project)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(root, "program-"+stamp)
	c := &JavaClasses{
		Dir: filepath.Join(dir, "classes"), java: i.java.path,
		classPath: joinPath(i.classPath(), []string{filepath.Join(dir, "libs", "*"), filepath.Join(dir, "classes")}),
	}
	lock, err := lockFile(ctx, filepath.Join(root, "program.lock"), nil)
	if err != nil {
		return nil, err
	}
	defer lock.release()
	if exists(dir) {
		return c, nil
	}
	tmp, err := os.MkdirTemp(root, "compile-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	if err := i.compile(ctx, project, sources, tmp); err != nil {
		return nil, err
	}
	return c, os.Rename(tmp, dir)
}

// readProject gives the sources of a project and a name for what they are.
func readProject(project string) (sources []string, stamp string, err error) {
	sources, err = filepath.Glob(filepath.Join(project, "src", "main", "java", "*.java"))
	if err != nil {
		return nil, "", err
	}
	sum := sha256.New()
	for _, file := range append([]string{filepath.Join(project, "pom.xml")}, sources...) {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, "", err
		}
		fmt.Fprintf(sum, "%s %d\n%s", filepath.Base(file), len(text), text)
	}
	return sources, hex.EncodeToString(sum.Sum(nil)[:8]), nil
}

// compile fills a folder with the jars and the classes of a project.
func (i install) compile(ctx context.Context, project string, sources []string, dir string) error {
	libs := filepath.Join(dir, "libs")
	if err := copyJars(ctx, "the jars of "+project, filepath.Join(project, "pom.xml"), libs, "-DexcludeTransitive"); err != nil {
		return err
	}
	var jars []string
	for _, pattern := range []string{i.classPath(), filepath.Join(libs, "*")} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		jars = append(jars, found...)
	}
	args := slices.Concat(baseFlags(), []string{
		"-cp", filepath.Join(libs, "*"), compiler, "-17", "-nowarn", "-d", filepath.Join(dir, "classes"), "-cp", joinPath("", jars),
	}, sources)
	if out, err := exec.CommandContext(ctx, i.java.path, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("compiling %s: %w: %s", project, err, out)
	}
	return nil
}

// Command runs one of the programs. Its errors go to stderr.
func (c *JavaClasses) Command(ctx context.Context, class string, args ...string) *exec.Cmd {
	flags := slices.Concat(baseFlags(), logFlags(), []string{"-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-Xmx256m", "-cp", c.classPath, class})
	return exec.CommandContext(ctx, c.java, append(flags, args...)...)
}

func joinPath(first string, more []string) string {
	return strings.TrimPrefix(strings.Join(append([]string{first}, more...), string(filepath.ListSeparator)), string(filepath.ListSeparator))
}
