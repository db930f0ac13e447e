// Package starter lets gnoded give up what it doesn't need of root's rights, and still start the
// site's programs and gshim with all of them.
//
// What a process may never have (its capability bounding set, its filter of system calls) is handed
// down to all that it starts. So the program gnoded first starts itself once more, as the starter,
// and then executes itself anew in a smaller cage (confine.go). The starter (serve.go) has all
// rights, does nothing but start programs that gnoded names, and ends with gnoded. A program is
// started through a process of gnoded's own, which hands the starter its files and ends as the
// program does: to gnoded it is a child like others.
//
//	gnoded (confined) -- child, "run" -- files, arguments --> starter -- program
//
// It does not own what is started, nor when. The jobs' launcher comes from the starter too, so
// that jobs, prologs and epilogs have what gnoded was started with; what confines the unit confines
// them.
//
// cage.go says what is given up, cage_amd64.go and cage_arm64.go which system calls.
package starter
