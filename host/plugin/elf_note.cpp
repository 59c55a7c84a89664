// Reading the ABI note of a plugin.
//
//   ELF header -> program headers -> PT_NOTE segments -> notes: u32 owner size, u32 descriptor size, u32 type,
//   owner padded to 4, descriptor padded to 4
// Every offset comes from the file, so each is checked against the file's size before it is used.
#include "plugin/elf_note.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "lora_host/plugin.h"

namespace lh {
namespace {

#if defined(__x86_64__)
constexpr uint16_t host_machine = EM_X86_64;
#elif defined(__aarch64__)
constexpr uint16_t host_machine = EM_AARCH64;
#else
#error "add the ELF machine of this platform"
#endif
constexpr unsigned char host_order = std::endian::native == std::endian::little ? ELFDATA2LSB : ELFDATA2MSB;
constexpr uint64_t note_limit = 1 << 20;  // a note segment is a few hundred bytes

std::string machine_name(uint16_t machine) {
  switch (machine) {
    case EM_X86_64: return "x86-64";
    case EM_AARCH64: return "aarch64";
    case EM_386: return "i386";
    case EM_RISCV: return "riscv";
    default: return fmt::format("number {}", machine);
  }
}

class ElfFile {
 public:
  explicit ElfFile(const std::filesystem::path& path)
      : path_(path), descriptor_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    struct stat status {};
    if (descriptor_ < 0 || fstat(descriptor_, &status) != 0) {
      int error = errno;
      if (descriptor_ >= 0) close(descriptor_);
      lh::fail(Code::plugin, "{}: cannot read: {}", path.string(), std::strerror(error));
    }
    if (!S_ISREG(status.st_mode)) {
      close(descriptor_);
      lh::fail(Code::plugin, "{}: is no regular file, so not a plugin", path.string());
    }
    size_ = static_cast<uint64_t>(status.st_size);
  }
  ~ElfFile() { close(descriptor_); }
  ElfFile(const ElfFile&) = delete;
  ElfFile& operator=(const ElfFile&) = delete;

  void check_range(uint64_t offset, uint64_t length, const char* what) const {
    if (offset > size_ || length > size_ - offset)
      fail(fmt::format("truncated: its {} should be {} bytes at {}, but the file has {}", what, length, offset, size_));
  }
  // Reads `length` bytes at `offset`; both come from the file and may be anything.
  void read(uint64_t offset, void* out, uint64_t length, const char* what) const {
    check_range(offset, length, what);
    auto* bytes = static_cast<char*>(out);
    while (length > 0) {
      ssize_t count = pread(descriptor_, bytes, length, static_cast<off_t>(offset));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) fail(fmt::format("cannot read its {}", what));
      bytes += count;
      offset += static_cast<uint64_t>(count);
      length -= static_cast<uint64_t>(count);
    }
  }

  [[noreturn]] void fail(const std::string& text) const { lh::fail(Code::plugin, "{}: {}", path_.string(), text); }

 private:
  std::filesystem::path path_;
  int descriptor_;
  uint64_t size_ = 0;
};

Elf64_Ehdr read_header(const ElfFile& file) {
  unsigned char ident[EI_NIDENT];
  file.read(0, ident, sizeof ident, "ELF identification");
  if (std::memcmp(ident, ELFMAG, SELFMAG) != 0) file.fail("not an ELF shared library, so not a plugin");
  if (ident[EI_CLASS] != ELFCLASS64 || ident[EI_DATA] != host_order)
    file.fail("built for another kind of machine (word size or byte order); build the plugin on this machine");
  Elf64_Ehdr header;
  file.read(0, &header, sizeof header, "ELF header");
  if (header.e_machine != host_machine)
    file.fail(fmt::format("built for machine {}, this host runs on {}; build the plugin on this machine",
                          machine_name(header.e_machine), machine_name(host_machine)));
  if (header.e_type != ET_DYN) file.fail("not a shared library, so not a plugin");
  if (header.e_phnum != 0 && header.e_phentsize != sizeof(Elf64_Phdr))
    file.fail(fmt::format("damaged: program headers of {} bytes, expected {}", header.e_phentsize, sizeof(Elf64_Phdr)));
  return header;
}

// Looks through one note segment. True when the record was found.
bool find_note(const ElfFile& file, const std::vector<char>& notes, AbiNote& out) {
  constexpr std::string_view owner = LH_NOTE_OWNER;
  uint64_t at = 0, size = notes.size();
  auto padded = [](uint64_t length) { return (length + 3) & ~uint64_t{3}; };  // of 32-bit lengths: cannot overflow
  while (size - at >= 12) {
    uint32_t lengths[3];  // owner, descriptor, type
    std::memcpy(lengths, &notes[at], sizeof lengths);
    uint64_t owner_at = at + 12, descriptor_at = owner_at + padded(lengths[0]);
    uint64_t end = descriptor_at + padded(lengths[1]);
    if (end > size) file.fail("damaged: a note reaches beyond its segment");
    bool ours = lengths[0] == owner.size() + 1 && std::memcmp(&notes[owner_at], LH_NOTE_OWNER, owner.size() + 1) == 0;
    if (ours && lengths[2] == LH_NOTE_TYPE) {
      if (lengths[1] < 4) file.fail(fmt::format("damaged: the lora-host note has {} bytes, expected 4", lengths[1]));
      std::memcpy(&out.major, &notes[descriptor_at], 2);
      std::memcpy(&out.minor_needed, &notes[descriptor_at + 2], 2);
      return true;
    }
    at = end;
  }
  return false;
}

}  // namespace

AbiNote read_abi_note(const std::filesystem::path& path) {
  ElfFile file(path);
  Elf64_Ehdr header = read_header(file);
  AbiNote note;
  bool found = false;
  for (uint64_t i = 0; i < header.e_phnum; ++i) {
    if (header.e_phoff > UINT64_MAX - i * sizeof(Elf64_Phdr)) file.fail("damaged: program headers beyond any file");
    Elf64_Phdr segment;
    file.read(header.e_phoff + i * sizeof segment, &segment, sizeof segment, "program header");
    // The system maps what the headers promise; touching a page beyond the file's end would kill the process.
    if (segment.p_type == PT_LOAD) file.check_range(segment.p_offset, segment.p_filesz, "code or data");
    if (segment.p_type != PT_NOTE || found) continue;
    if (segment.p_filesz > note_limit) file.fail(fmt::format("damaged: a note segment of {} bytes", segment.p_filesz));
    std::vector<char> notes(segment.p_filesz);
    file.read(segment.p_offset, notes.data(), notes.size(), "notes");
    found = find_note(file, notes, note);
  }
  if (found) return note;
  file.fail(
      "has no lora-host note, so it is not a plugin; plugins are built with lora_host_add_plugin() and say "
      "LORA_HOST_PLUGIN(...) once");
}

}  // namespace lh
