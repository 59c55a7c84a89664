# Bugs that the fuzz targets must find: in each a reader checks one bound wrongly.
#   lora_plant(TARGET NAME FILE [[text, once in the file]] [[what stands there instead]])
lora_plant(safetensors trailing host/io/safetensors.cpp [[if (end < file_size)]] [[if (end + 1 < file_size)]])
lora_plant(safetensors overlap host/io/safetensors.cpp [[if (entry.begin != position)]] [[if (entry.begin > position)]])
lora_plant(safetensors wrap host/core/tensor.cpp [[if (__builtin_mul_overflow(a, b, &result))]]
  [[result = static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b)); if (a < 0)]])
lora_plant(safetensors duplicate host/io/safetensors_header.cpp [[if (!names_.insert(text).second)]]
  [[if (!names_.insert(text).second && text.size() > 8)]])
lora_plant(gguf overlap host/io/gguf.cpp [[if (tensor->offset < end)]] [[if (tensor->offset + 8 < end)]])
lora_plant(record digest host/io/record.cpp [[if (!same || seal.hex() != entry(file.metadata(), digest_entry))]]
  [[if (!same && seal.hex() != entry(file.metadata(), digest_entry))]])
lora_plant(record key host/io/record.cpp [[if (kind != id.kind || key != id.key)]] [[if (kind != id.kind)]])
lora_plant(state negative host/train/state_files.cpp [[&& step >= 0;]] [[;]])
lora_plant(state finite host/train/state_files.cpp [[if (found > 0 && tensors_++ == 0)]] [[if (found > 1 && tensors_++ == 0)]])
lora_plant(cache check host/encode/tensor_cache.cpp [[why = check(record.tensors);]]
  [[why = record.tensors.contains("latent") ? "" : check(record.tensors);]])
lora_plant(lora product host/io/lora_read.cpp [[a.rank() < 2 || b.rank() < 2 || columns_of(a) != b[0])]]
  [[a.rank() < 2 || b.rank() < 2 || columns_of(a) < b[0])]])
lora_plant(index outside host/io/weight_files.cpp [[fs::path(name).filename() != name || ]] [[]])
lora_plant(config duplicate host/config/yaml.cpp [[if (!added)]] [[if (!added && first->second == node.place.line)]])
lora_plant(config depth host/config/yaml.cpp [[open_.size() >= max_depth]] [[open_.size() > max_depth]])
lora_plant(settings phase host/config/run_settings.cpp [[settings.phase_ >= settings.file_.phases.size()]]
  [[settings.phase_ > settings.file_.phases.size()]])
lora_plant(history step host/io/history.cpp [[change.step < 0]] [[change.step < -9]])
lora_plant(request value host/config/run_settings.cpp [[if (!problems.empty()) report(source, problems);
  node.kind = Kind::map;]] [[node.kind = Kind::map;]])
lora_plant(caption utf8 host/core/utf8.cpp [[if (character < 0)]] [[if (character < 0 && at - start > 1)]])
lora_plant(png chunk host/data/png.cpp [[if (length > file.size() - at - frame) break;]] [[]])
lora_plant(jpeg orientation host/data/exif.cpp [[value <= 8 ?]] [[value <= 9 ?]])
lora_plant(webp chunk host/data/webp.cpp [[if (length > file.size() - at - chunk_header) return {};]] [[]])
lora_plant(gif colour host/data/gif.cpp [[if (line[x] >= colours->ColorCount)]] [[if (line[x] > colours->ColorCount)]])
lora_plant(bmp channels host/data/bmp.cpp [[for (int c = 0; c < 3; ++c) image]] [[for (int c = channels == 4; c < 3; ++c) image]])
lora_plant(tiff offset host/data/tiff.cpp [[std::min<uint64_t>(tiff.at, tiff.file.size())]] [[tiff.at]])
lora_plant(heif size host/data/heif.cpp [[check_image_size(size().width, size().height);]] [[]])
lora_plant(video turned host/data/video.cpp [[if (stream.orientation >= 5)]] [[if (stream.orientation > 6)]])
lora_plant(bpe id host/data/bpe_files.cpp [[value.is_number_unsigned() && value.get<uint64_t>() <= max_id]]
  [[value.is_number_unsigned()]])
lora_plant(sentencepiece last host/data/sentencepiece_tokenizer.cpp [[id < processor_.GetPieceSize();]]
  [[id + 1 < processor_.GetPieceSize();]])
lora_plant(note end host/plugin/elf_note.cpp [[if (end > size)]] [[if (descriptor_at > size)]])
