//go:build tools

package tools

import _ "github.com/NVIDIA/nvidia-container-toolkit/cmd/nvidia-ctk"
