// Package assets finds the binaries that a local cluster runs, and builds them
// from source when they aren't there.
package assets

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Names of the environment variables that say where things are. The wrapper
// script sets the last two.
const (
	FolderVariable = "BERTH_KUBE_ASSETS"   // ready binaries; nothing is built
	CacheVariable  = "BERTH_CACHE_DIR"     // where built binaries are kept
	SourceVariable = "LOCALCLUSTER_SOURCE" // this module's folder
	GoVariable     = "LOCALCLUSTER_GO"     // the go command
)

// separate are the commands that cmd/kubernetes is all of. Ready binaries may
// be these, upstream's own releases for example, in its stead.
var separate = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}

// Binaries is a folder that holds all that a cluster runs.
type Binaries struct{ Folder string }

// Path is the binary of a command. The one that stands for several goes by
// argv[0], so a caller gives the command's name there.
func (b Binaries) Path(command string) string {
	if own := filepath.Join(b.Folder, command); isProgram(own) {
		return own
	}
	return filepath.Join(b.Folder, "kubernetes")
}

// InFolder takes ready binaries from a folder, and names those it lacks.
func InFolder(folder string) (Binaries, error) {
	absolute, err := filepath.Abs(folder)
	if err != nil {
		return Binaries{}, err
	}
	var missing []string
	if !isProgram(filepath.Join(absolute, "kwok")) {
		missing = append(missing, "kwok")
	}
	if !isProgram(filepath.Join(absolute, "kubernetes")) {
		for _, name := range separate {
			if !isProgram(filepath.Join(absolute, name)) {
				missing = append(missing, name)
			}
		}
		if len(missing) >= len(separate) {
			missing = append(missing, "(or kubernetes, which is those four in one)")
		}
	}
	if len(missing) > 0 {
		return Binaries{}, fmt.Errorf("%s names %s, which lacks these programs: %s; put them there, or unset %s to have them built",
			FolderVariable, folder, strings.Join(missing, ", "), FolderVariable)
	}
	return Binaries{absolute}, nil
}

// CacheFolder is where built binaries are kept.
func CacheFolder() (string, error) {
	if folder := os.Getenv(CacheVariable); folder != "" {
		return filepath.Join(folder, "localcluster"), nil
	}
	if folder := os.Getenv("XDG_CACHE_HOME"); folder != "" {
		return filepath.Join(folder, "berth", "localcluster"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("there is no home folder to keep binaries in; set %s to a folder: %w", CacheVariable, err)
	}
	return filepath.Join(home, ".cache", "berth", "localcluster"), nil
}

func isProgram(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.IsDir() && info.Mode()&0o111 != 0
}
